"""The stages of a run: typed functions."""
