"""Searching: what the loop stands on. Settings, schedules, state on disk, measures, processes."""
