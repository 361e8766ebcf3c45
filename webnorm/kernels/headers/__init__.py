"""Kernels' files and their headers: what there is, tune axes, and the variants an adapter can run."""
