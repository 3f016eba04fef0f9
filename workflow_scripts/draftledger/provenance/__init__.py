"""Digests, manifests, recipes and the content-addressed store."""
