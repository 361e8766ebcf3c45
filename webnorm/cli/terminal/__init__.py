"""Streams, the screen, columns, modes and signals of the terminal."""
