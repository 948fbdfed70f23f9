"""Published benchmarks, one file each: their files and tables, prompts and metrics."""
