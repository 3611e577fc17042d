"""Networks, as plain modules."""
