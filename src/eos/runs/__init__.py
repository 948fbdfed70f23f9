"""Runs: what every run's folder needs: files that survive a killed process, the environment."""
