"""What is said of finished runs: comparisons, baselines, history, and data for notebooks."""
