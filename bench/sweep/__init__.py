"""Sweeps of many variants over many problems: the data that kernel=auto chooses by."""
