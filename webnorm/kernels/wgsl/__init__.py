"""WGSL as text: its tokens, limits of its size, and naga's messages about it."""
