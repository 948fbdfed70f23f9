"""Data: what a search learns from. Sources of samples, their order, and batches with labels."""
