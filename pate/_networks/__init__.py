"""Teachers and students that are networks, with the only imports of torch."""
