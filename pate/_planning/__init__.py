"""Planning before any budget is spent: simulated votes, noise for a target, quality, costs."""
