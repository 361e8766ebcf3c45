"""WGSL as text: its tokens and declarations, limits of its size, and naga's messages about it."""
