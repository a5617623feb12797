"""What one step of a model reads and computes, by the sizes of its weights. Knows no machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from specserve.models.config import ModelConfig


class Work(NamedTuple):
    """Of a model without mixtures of experts: every row uses all weights."""

    weight_bytes: int
    """That every step reads, whatever number of rows it has: all but the embedding, of which it reads rows only."""
    kv_bytes: int
    """Of one token in the cache."""
    weight_flops: int
    """Of one row, in products with weights."""
    attention_flops: int
    """Of one row, for each token that it attends to."""

    def step_bytes(self, num_requests: int, context: int) -> int:
        """Weights once, and each request's keys and values."""
        return self.weight_bytes + num_requests * context * self.kv_bytes

    def step_flops(self, num_rows: int, context: int) -> int:
        return num_rows * (self.weight_flops + context * self.attention_flops)


def work_of(model: ModelConfig, parameters: int, served_bytes: int, kv_bytes: int) -> Work:
    """`parameters` and `served_bytes`: of all weights. An embedding that is the output head, too, is read whole."""
    embedding = 0 if model.tied else model.vocab_size * model.hidden_size
    bytes_per_parameter = served_bytes / parameters
    return Work(
        weight_bytes=round(served_bytes - embedding * bytes_per_parameter),
        kv_bytes=kv_bytes,
        weight_flops=2 * (parameters - embedding),
        attention_flops=4 * model.num_heads * sum(model.attention(layer).head_dim for layer in range(model.num_layers)),
    )
