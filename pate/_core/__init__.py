"""Noise, mechanisms, accounting, releases and their contracts: they need no data and no network."""
