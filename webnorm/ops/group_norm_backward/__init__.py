"""The gradient of GroupNorm."""
