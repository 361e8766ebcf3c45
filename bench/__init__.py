"""Sweeps, comparisons and recorded results."""
