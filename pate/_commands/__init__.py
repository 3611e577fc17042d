"""The commands: one module each, which parses arguments, calls typed functions and prints the results."""
