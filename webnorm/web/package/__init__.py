"""npm packages: shaders for each class of devices, a manifest, and test vectors."""
