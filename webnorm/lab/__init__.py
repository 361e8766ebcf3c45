"""Checks, timings and comparisons of variants, and their results."""
