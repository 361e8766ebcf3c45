"""Results as pictures, drawn by matplotlib in a process of its own."""
