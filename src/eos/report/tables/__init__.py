"""The paper's tables, one function each: studies in, a sheet out."""
