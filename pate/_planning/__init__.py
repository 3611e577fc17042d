"""Planning before anything is spent: simulated votes, noise for a target, quality against epsilon, and costs."""
