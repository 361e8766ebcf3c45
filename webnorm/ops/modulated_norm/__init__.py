"""The op `modulated_norm`: a norm with a scale and a shift for each batch element, or with an activation."""
