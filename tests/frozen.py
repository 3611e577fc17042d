"""What was imported so far is kept out of collections of garbage, which would copy all of it in every fork."""

import gc

gc.collect()
gc.freeze()
