"""The speed of the norm family, next to torch's functions."""
