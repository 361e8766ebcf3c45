"""The op `gated_norm_backward`: the gradients of `gated_norm`."""
