"""The mapping from a line of rendered text to the template line that a user wrote."""
