"""draftledger: train, decode and honestly measure speculative-decoding drafters on MLX."""
