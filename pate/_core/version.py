"""The version of the package, in a module that imports nothing, so that all others may."""

__version__ = "0.4.0.dev0"
