"""Datasets of torch and others, and maps as modules."""
