"""Weights of 4 and 8 bits among the tensors of a checkpoint, a module for each method of storing them."""
