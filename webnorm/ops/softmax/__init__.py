"""Softmax and its logarithm, with a scale, additive masks and a causal mask."""
