"""Searching: settings, objective, profile, paths, gradients, state on disk, processes; `search`."""
