"""Sweeps, benchmarks against other libraries, and recorded results."""
