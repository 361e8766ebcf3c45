"""The op `gated_norm`: a norm that is multiplied by an activation of a second input."""
