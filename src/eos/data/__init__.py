"""Data for a search: sources of samples, their order, and batches with labels."""
