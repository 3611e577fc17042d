"""Private learning without votes, for comparison: what other mechanisms make of the private records of a run."""
