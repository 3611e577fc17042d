"""Private learning without votes, for comparison: what other mechanisms make of the same private records."""
