"""The playground: watch one kernel file and show its state in the terminal or on a page."""
