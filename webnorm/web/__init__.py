"""Shaders for web apps: packages, their pages, the proof that they work, and what visitors of a page send."""
