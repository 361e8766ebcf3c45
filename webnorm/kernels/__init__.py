"""From a kernel's file to the text of a shader; needs no GPU."""
