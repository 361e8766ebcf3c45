"""The functions and modules that people call from Python, on arrays of theirs."""
