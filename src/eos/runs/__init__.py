"""Runs: what every run's folder needs: files, journals, the check of identity, environment."""
