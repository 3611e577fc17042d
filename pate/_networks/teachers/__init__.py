"""Many teachers trained at once."""
