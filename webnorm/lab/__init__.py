"""Variants tried, compared and timed, and the results of that."""
