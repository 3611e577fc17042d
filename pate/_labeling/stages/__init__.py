"""The stages of a run, also on made-up records."""
