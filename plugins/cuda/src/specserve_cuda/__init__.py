"""specserve on NVIDIA GPUs: kernels, attention and graphs of CUDA devices."""
