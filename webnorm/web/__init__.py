"""Shaders for web apps: packages, their pages, the verification of both, and visitors' results."""
