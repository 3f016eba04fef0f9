"""Pictures made from rows."""
