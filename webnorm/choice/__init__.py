"""The choice of a kernel and its constants for a problem."""
