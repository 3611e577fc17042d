"""Public maps of features, fitted only on public samples: they reveal no private record."""
