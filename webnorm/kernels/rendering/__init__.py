"""Rendering of a variant and a problem to the text of a shader: templates, the sandbox, traces."""
