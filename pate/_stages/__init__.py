"""The stages of a run as typed functions."""
