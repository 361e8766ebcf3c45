"""Runs on a Dask cluster of several adapters or machines: work items, the files sent with them, and pools.

Only `worker`, `cluster` and `dispatcher` import `distributed`.
"""
