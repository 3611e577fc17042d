"""Releases of anything made from private data: one transaction, for labels and for top k."""
