"""Testing: small models of every family for tests and for trying things out; no product code."""
