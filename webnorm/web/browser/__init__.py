"""Browsers: starting one, visiting a page."""
