"""Prompts, timing, exactness and the definitions of every metric."""
