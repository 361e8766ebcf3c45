"""How a command ends: its exit status, and Ctrl-C."""

OK, WRONG, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130


class Interrupted(Exception):
    """Ctrl-C, after what was finished has been shown and written. Typer would swallow a KeyboardInterrupt."""
