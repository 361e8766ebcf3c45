"""LayerNorm, RMSNorm and their gradients, with everything that is theirs alone."""
