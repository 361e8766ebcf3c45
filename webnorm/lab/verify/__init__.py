"""Whether a kernel is right: outputs against float64, races, loops, and proof that timed work was done."""
