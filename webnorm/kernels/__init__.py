"""Translation of a kernel file to the text of a shader, without a GPU."""
