"""The version of the package, in a module that imports nothing: rooms name it, and the door names rooms."""

__version__ = "0.3.0"
