"""Sweeps: timings of many variants of many problems, the data behind kernel=auto."""
