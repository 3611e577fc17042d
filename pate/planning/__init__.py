"""What to choose before anything is paid: simulated votes, noise for a target, quality against epsilon, and costs."""
