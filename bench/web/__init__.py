"""Webnorm's exports beside other libraries that run in a browser."""
