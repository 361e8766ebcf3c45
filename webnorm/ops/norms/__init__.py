"""LayerNorm, RMSNorm, their gradients, and all code that is specific to them."""
