"""The gradient of rows divided by their norm."""
