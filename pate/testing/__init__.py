"""Checks that other packages inherit for their own mechanisms, aggregators and events."""
