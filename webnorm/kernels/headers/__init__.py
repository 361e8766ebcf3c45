"""Kernel files and their headers: the library of kernels, tune axes, and the variants an adapter can run."""
