"""webnorm: normalisation kernels in WGSL, checked against float64 and timed, from Python."""

__version__ = "0.1.0"
