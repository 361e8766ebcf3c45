"""The gradient of softmax and of its logarithm."""
