"""Shaders for web apps: the packages, their pages, and the proof that they work."""
