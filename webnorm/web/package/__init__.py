"""npm packages: shaders for each class of devices, manifest, test vectors."""
