"""Audits of runs: lower bounds on epsilon from canaries and from what was published.

Nothing here protects anybody.
"""
