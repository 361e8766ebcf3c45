"""Webnorm and other libraries on one machine, measured in turn, and the files of such a record."""
