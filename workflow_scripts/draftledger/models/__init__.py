"""Targets: where they come from, how they load, and their revocable state."""
