"""Functions and modules that Python programs call on their arrays."""
