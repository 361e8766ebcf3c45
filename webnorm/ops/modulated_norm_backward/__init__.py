"""The op `modulated_norm_backward`: the gradients of `modulated_norm`."""
