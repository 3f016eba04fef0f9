"""Published drafters: every packaging told by rule, read strictly, and written back in the common ones."""
