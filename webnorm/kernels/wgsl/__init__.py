"""WGSL as text: tokens, limits on its size, and naga's error messages."""
