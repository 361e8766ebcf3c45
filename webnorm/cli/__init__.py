"""The `webnorm` command: it reads arguments and prints."""
