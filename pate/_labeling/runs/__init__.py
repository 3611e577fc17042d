"""A run on disk: its stages, its key, its data and votes, and the labels that leave it."""
