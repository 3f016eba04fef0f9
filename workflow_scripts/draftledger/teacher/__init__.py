"""The target's cached distributions."""
