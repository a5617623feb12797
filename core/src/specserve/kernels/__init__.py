"""The core's own kernel sets: torch, and Triton for CUDA."""
