"""Records of webnorm's exports and other libraries in a browser."""
