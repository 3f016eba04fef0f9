"""Documents, windows and the overlap between training and evaluation text."""
