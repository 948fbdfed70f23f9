"""Behaviour, held by assertions that could fail."""
