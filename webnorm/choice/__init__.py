"""Which kernel computes a problem, and with which constants."""
