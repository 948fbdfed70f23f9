"""Reduction as pure tensor code: score, select, operate. Knows nothing of any model."""
