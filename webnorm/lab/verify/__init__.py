"""Verification of kernels: outputs against float64, races, endless loops, and the proof of timed work."""
