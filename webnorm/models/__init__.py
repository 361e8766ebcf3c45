"""Models as others write them, and the norms that they contain. No weights are read."""
