"""The row-wise arithmetic of a decoder and its sampler, as Triton kernels."""
