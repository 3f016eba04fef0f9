"""Intervals over seeds and prompts, and the verdicts fixed in advance."""
