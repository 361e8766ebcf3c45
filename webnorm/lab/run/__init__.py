"""The lab's entry points: benchmarks, checks, tuning, and the evaluation of one file."""
