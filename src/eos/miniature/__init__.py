"""The miniature: an embedded LLaVA of a few million parameters and the procedural world it knows.

Small scale by intention: its scores say which reduction hurts what, never how a method would do on
a public benchmark.
"""
