"""The op protocol: sizes, tensors, storage types, options, scalars, draws and expected values; the loader of
ops.
"""
