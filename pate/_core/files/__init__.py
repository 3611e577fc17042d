"""Atomic writes, locks, digests, and careful reading of files that others wrote."""
