"""A student without its run, its figures and its predictions."""
