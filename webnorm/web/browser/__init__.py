"""Browsers: starting one, serving a folder to it, visiting a page."""
