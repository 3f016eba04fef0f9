"""Losses, blocks, keyed randomness and the trainers of drafters."""
