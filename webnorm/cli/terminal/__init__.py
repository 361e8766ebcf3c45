"""Streams, the screen, columns, keys and signals of the terminal."""
