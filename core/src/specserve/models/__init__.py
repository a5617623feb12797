"""From a checkpoint to a decoder: configuration, weights, rotation, projections, and the pass piece by piece."""
