"""Commands: their arguments, what they print, and how they end. Each is a module that calls typed functions."""
