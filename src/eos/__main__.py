"""``python -m eos``."""

from eos.cli import run

run()
