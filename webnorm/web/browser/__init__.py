"""Browsers: starting a browser and visiting a page."""
