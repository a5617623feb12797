"""The paged KV cache: slots, blocks and their holders, and the tensors."""
