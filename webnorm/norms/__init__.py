"""What is computed: problems, ops, their inputs and the answers in float64."""
