"""The stages of a run: typed functions, and the commands that call them."""
