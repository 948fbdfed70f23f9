"""Training of the miniature, `python -m eos.miniature.training.train`; no other package uses it."""
