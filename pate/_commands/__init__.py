"""The commands, one module each: they parse arguments, call typed functions and print results."""
