"""The version of webnorm, and nothing else: every room may ask for it."""

__version__ = "0.1.0"
