"""Proof that an export works: its files, its shaders in Chrome's compiler, its answers in a browser."""
