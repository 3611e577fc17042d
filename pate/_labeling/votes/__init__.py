"""Votes: their kinds in memory, and the voters behind scores and moments."""
