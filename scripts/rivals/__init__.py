"""Private learning without votes, for comparison: other mechanisms on the private records of a run."""
