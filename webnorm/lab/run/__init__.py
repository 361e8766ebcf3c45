"""What a user asks the lab for: benchmarks, checks, tuning, the evaluation of one file."""
