"""Measure: whether the mathematics holds, how fast a plan is, and how well it answers."""
