"""GroupNorm, with InstanceNorm and MeanVarianceNormalization as special cases."""
