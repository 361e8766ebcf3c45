"""The `webnorm` command: reads arguments, prints."""
