"""One module for a command or a few; `pate.cli` lists them."""
