"""Measure: whether the mathematics holds, and later how well and how fast a plan works."""
