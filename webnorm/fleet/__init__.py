"""Runs on more than one adapter or machine: what travels there, who may share the work, and Dask, which does
it. `distributed` is imported in `worker`, `cluster` and `dispatcher` alone.
"""
