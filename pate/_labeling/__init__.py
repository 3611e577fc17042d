"""Votes, aggregators, data, runs, a linear student, and the commands."""
