"""How many states of recurrent layers fit into their memory, and their tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.config import parse_bytes
from specserve.engine.size_cache import free_memory, free_memory_on
from specserve.engine.states import NO_STATES, NoStates, RecurrentStates, StateRoom
from specserve.errors import ConfigError
from specserve.kv.states import StatePool
from specserve.memory import zeros_in_huge_pages
from specserve.protocols import LayerStates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.config import EngineConfig
    from specserve.models.served_model import ServedModel

SHARE_OF_FREE_MEMORY = 0.1
SAVED_PER_REQUEST = 4
"""States that are saved for the prefix cache where no memory is named, for each request that may run."""
INTERVAL = 256
"""Tokens between two saved states of a prompt."""


class StateSizes(NamedTuple):
    """Bytes of all recurrent layers."""

    state: int
    trail: int
    """Of the draft tokens of one request in a step."""

    @classmethod
    def of(cls, layers: Iterable[tuple[int, int, int]], most_nodes: int, dtype: torch.dtype) -> StateSizes:
        """layers: the state_size, trail_width and update_size of each."""
        states, trails, updates = map(sum, zip(*layers, strict=True))
        full = torch.float32.itemsize
        return cls(states * full, (trails * dtype.itemsize + updates * full) * most_nodes)

    def own(self, num_running: int) -> int:
        """What so many requests take."""
        return (1 + 2 * num_running) * (self.state + self.trail)

    def total(self, num_running: int, num_saved: int) -> int:
        """With so many saved states."""
        return self.own(num_running) + num_saved * self.state


def make_states(config: EngineConfig, model: ServedModel, *, drafts: bool) -> NoStates:
    """Those of the model's recurrent layers, whose tensors it gets. Raises ConfigError where memory is too small."""
    mixers = model.recurrent
    if not mixers:
        return NO_STATES
    most_nodes = config.max_draft_tokens if drafts else 0
    layers = [(mixer.state_size, mixer.trail_width, mixer.update_size) for mixer in mixers]
    sizes = StateSizes.of(layers, most_nodes, model.dtype)
    saved = num_saved(config, sizes, free_memory(config.device))
    own, num_bytes = 1 + 2 * config.max_num_seqs, sizes.total(config.max_num_seqs, saved)
    try:
        model.layer_states = [
            LayerStates(
                zeros_in_huge_pages((), (own + saved, mixer.state_size), torch.float32, model.device),
                zeros_in_huge_pages((), (own, most_nodes, mixer.trail_width), model.dtype, model.device),
                zeros_in_huge_pages((), (own, most_nodes, mixer.update_size), torch.float32, model.device),
            )
            for mixer in mixers
        ]
    except RuntimeError as error:  # what torch's allocators raise
        raise ConfigError(
            f"no room for {num_bytes} bytes of recurrent states; {free_memory_on(config.device)}. Choose a smaller "
            "--state-memory."
        ) from error
    pool = StatePool(config.max_num_seqs, saved)
    interval = -(-INTERVAL // config.block_size) * config.block_size
    return RecurrentStates(
        pool, StateRoom(num_bytes, most_nodes), config.block_size, interval, saves=config.prefix_cache
    )


def num_saved(config: EngineConfig, sizes: StateSizes, free: int) -> int:
    """How many states are saved beside those of requests."""
    own = sizes.own(config.max_num_seqs)
    wanted = SAVED_PER_REQUEST * config.max_num_seqs
    if config.state_memory is not None:
        most = parse_bytes(config.state_memory) - own
    else:
        most = free - own if own > free else int(SHARE_OF_FREE_MEMORY * free)
    if most < 0:
        raise ConfigError(
            f"the states of {config.max_num_seqs} requests take {own} bytes, and there is room for {most + own}. Give "
            "more with --state-memory, or choose a smaller --max-num-seqs or --max-draft-tokens."
        )
    if not config.prefix_cache:
        return 0
    count = most // sizes.state
    return count if config.state_memory is not None else min(count, wanted)
