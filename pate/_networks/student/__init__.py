"""A student by Lightning, and its export."""
