"""The only way from private to public."""
