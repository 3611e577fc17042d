"""The commands: they parse arguments, call typed functions and print results."""
