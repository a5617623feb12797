"""What a model gives for whole texts, its layers' hidden states and its logits, by the passes that serve it: for
programs that learn from a model. Without requests, a step loop or drafts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.builder import BatchBuilder
from specserve.batch.span import Span
from specserve.batch.span_states import SpanStates
from specserve.config import EngineConfig
from specserve.engine.choose_attention import choose_attention
from specserve.engine.size_cache import allocate
from specserve.engine.size_states import make_states
from specserve.kv.slots import num_blocks_for
from specserve.kv.states import EMPTY, FIRST_OWN
from specserve.models.runner import Runner, StepParts
from specserve.plugins.host import PluginHost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from specserve.models.served_model import ServedModel
    from specserve.protocols import AttentionBackend


class TextStates(NamedTuple):
    """Of every token of a text of T tokens. Inference tensors."""

    hidden: Mapping[int, Tensor]
    """[T, H] by layer: 0 is the embedding, n the output of layer n - 1."""
    logits: Tensor
    """[T, V] float32."""


class TextReader:
    """Reads with the model's own kernels, packed or not, and the core's attention. The model gets the memory in which
    its layers keep what they know of a text, so no engine has it at the same time."""

    def __init__(self, model: ServedModel) -> None:
        self.model = model
        self.config = EngineConfig(
            device=model.device.type,
            dtype=str(model.dtype).removeprefix("torch."),
            max_num_seqs=1,
            prefix_cache=False,
            default_plugins=False,
        )
        self.builder = BatchBuilder(self.config.block_size, model.device)
        self.room = 0
        """Tokens of the longest text for which there is memory."""
        self.attention: AttentionBackend
        self.runners: dict[tuple[int, ...], Runner] = {}
        """By the layers that are read."""

    def read(self, ids: Sequence[int], layers: Sequence[int] = ()) -> TextStates:
        """ids: [T]. Raises ValueError for what the model has not, and ConfigError where no attention fits the model."""
        self.check(ids, layers)
        if len(ids) > self.room:
            self.make_room(len(ids))
        key = tuple(sorted(layers))
        if key not in self.runners:
            self.runners[key] = Runner(StepParts(self.model, self.model.kernels, self.attention, key))
        output = self.runners[key].forward(self.builder.build([self.span(len(ids))], [ids]))
        return TextStates(output.hidden, output.logits)

    def check(self, ids: Sequence[int], layers: Sequence[int]) -> None:
        model = self.model
        if not 1 <= len(ids) <= model.max_model_len:
            raise ValueError(f"a text must have 1 to {model.max_model_len} tokens; got {len(ids)}.")
        if not 0 <= min(ids) <= max(ids) < model.vocab_size:
            raise ValueError(f"token ids must be from 0 to {model.vocab_size - 1}; got {min(ids)} to {max(ids)}.")
        if wrong := [layer for layer in layers if not 0 <= layer <= model.num_layers]:
            raise ValueError(f"hidden states have numbers 0 to {model.num_layers} in this model; got {wrong}.")

    def make_room(self, length: int) -> None:
        model, config = self.model, self.config
        choice = choose_attention(config, PluginHost.start(config), model, [])
        shape = choice.cache_shape(model.dtype, model.token_widths)
        cache = allocate(config, shape, num_blocks_for(length, config.block_size), model.device)
        model.token_states = cache.token_states
        make_states(config, model, drafts=False)
        self.attention = choice.build(cache, model.device).backend
        self.room = length
        self.runners.clear()

    def span(self, length: int) -> Span:
        """All tokens of a text, each with logits, behind nothing."""
        blocks = list(range(num_blocks_for(length, self.config.block_size)))
        states = SpanStates(0, EMPTY, (), FIRST_OWN) if self.model.recurrent else None
        return Span("text", 0, length, 0, length, blocks, states=states)
