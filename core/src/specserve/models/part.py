"""The part of a model that one process computes, where several compute one model together.

Each process has some rows or columns of every weight, and the heads and keys that follow from them; between two layers
all of them have the same hidden states. Letters: T rows, H hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.protocols.part import TensorPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from specserve.config import EngineConfig
    from specserve.models.config import ModelConfig
    from specserve.protocols import AdapterWeights, AttentionNeeds, Combine, KernelSet


class ModelPart:
    """All of the model, as one process alone computes it; a plugin's part extends it.

    The methods up to `agree_on_blocks` are called at start-up, in this order, in every process of one model alike.
    """

    memory_share: float = 1.0
    """Of the free memory that this process sees, how much it may count on: several may share the host's."""

    def configure(self, config: EngineConfig) -> EngineConfig:
        """config: resolved. The share of this process, of the threads for example. Raises ConfigError."""
        return config

    def numbers(self, config: ModelConfig) -> ModelConfig:
        """The heads and widths of this part; the vocabulary stays whole. Raises ConfigError where the model cannot be
        cut so."""
        return config

    def tensor(self, name: str, shape: tuple[int, ...]) -> TensorPart | None:
        """What this part has of the checkpoint's tensor, whose whole shape this is; None: nothing."""
        return TensorPart()

    def combine(self, projection: str) -> Combine | None:
        """What is called with every output of this projection, its deltas included; for `layers.N.experts`, with the
        weighted sum of that layer's experts, the shared one included."""
        return None

    def agree_on_attention(self, needs: AttentionNeeds) -> AttentionNeeds:
        """The needs that all parts choose their attention backend by: those of the process that has the requests."""
        return needs

    def agree_on_blocks(self, count: int) -> int:
        """The number of KV blocks: at most `count`, for which this process has the memory."""
        return count

    def embed(self, rows: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
        """rows: gives this part's rows of the embedding, by their number in it; ids: [T] int64 -> [T, H]."""
        return rows(ids)

    def pack_adapter(self, kernels: KernelSet, weights: AdapterWeights) -> Any:
        """weights: of the whole model. The adapter as `kernels` read it, of this part."""
        return kernels.pack_adapter(weights)

    def free_adapter(self, packed: object) -> None:
        """What `pack_adapter` gave is used no more."""

    def close(self) -> None:
        """The engine is done, or could not be loaded. May be called again."""


WHOLE_MODEL = ModelPart()
"""What a process has without a plugin's part."""
