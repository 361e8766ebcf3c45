"""Diagnosis of wrong outputs: error maps, error patterns, hints and traces."""
