"""Plots of results, drawn by matplotlib in a child process."""
