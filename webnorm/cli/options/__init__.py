"""Options that verbs share: their values, conflicts, completion and help."""
