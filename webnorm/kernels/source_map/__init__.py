"""From a line of rendered text back to the template line that a user wrote."""
