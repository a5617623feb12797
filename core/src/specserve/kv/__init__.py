"""The paged KV cache: who owns which block, what a block holds, and the tensors themselves."""
