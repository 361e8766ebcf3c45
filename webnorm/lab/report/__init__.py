"""Reports of finished runs: comparisons, baselines, history, and data for notebooks."""
