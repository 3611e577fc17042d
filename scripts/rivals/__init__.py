"""Private learning without votes, for comparison: other mechanisms on a run's records."""
