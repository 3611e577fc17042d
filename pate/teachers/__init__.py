"""Teachers: many trained at once on disjoint partitions, and their votes."""
