"""The op qk_norm_backward: the gradients of qk_norm."""
