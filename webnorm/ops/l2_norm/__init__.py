"""Rows divided by their norm: torch's normalize, and LpNormalization of ONNX."""
