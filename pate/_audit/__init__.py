"""Audits of runs: lower bounds on epsilon from canaries and from published files.

Nothing here protects a record.
"""
