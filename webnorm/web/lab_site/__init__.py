"""The lab's page as a static site, written and read back."""
