"""Attention over the paged KV cache, and the capabilities that a backend states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.mixer_inputs import StateRun
    from specserve.batch.preceding import PrecedingTokens
    from specserve.kv.cache import KVCache
    from specserve.protocols.mixer import Mixer
    from specserve.protocols.recurrent import LayerStates, RecurrentMixer

Phase = Literal["prefill", "decode", "verify"]
"""See `PHASES`."""
PHASES: tuple[Phase, ...] = ("prefill", "decode", "verify")
"""What a backend may be chosen for. A position has one phase for ever: those of the prompt are prefill, generated ones
verify where a drafter is enabled and decode elsewhere, however many rows a step has."""

GraphMode = Literal["full", "piecewise"]
"""How forward passes are recorded: see `specserve.protocols.graphs`."""


class KVLayout(NamedTuple):
    """How keys and values lie in the cache. Backends that share a cache must have a layout in common."""

    name: str
    slots: int = 1
    """Neighbouring slots whose numbers are mixed, of which a block must be a multiple."""
    numbers: int = 1
    """The size of a head must be a multiple of this."""
    dtype: str | None = None
    """The dtype of the cache's tensor; None: the model's."""
    beside: int = 0
    """Further elements per token and head, after its numbers: scales."""

    def fits(self, block_size: int, head_dim: int) -> bool:
        """Whether blocks of this many slots, and heads of this size, can lie so."""
        return block_size % self.slots == 0 and head_dim % self.numbers == 0


BY_SLOT = KVLayout("by_slot")
"""[slots, kv_heads, head_dim] of the model's dtype, as `KVCache` reads and writes it."""


class AttentionCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend can do, stated once."""

    paged: bool
    """It reads keys and values where they lie; False: it gathers copies first."""
    tree_mask: bool
    """A draft token attends to its own path and not to its siblings; where this is False, drafts are cut to chains."""
    ragged: bool
    """The requests of a batch may have different numbers of rows."""
    row_invariant: bool
    """A row's bits depend neither on the rows beside it nor on how its request was cut into spans."""
    block_sizes: tuple[int, ...]
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    head_bytes: dict[str, int] = {}
    """By device: the size of a head in bytes must be a multiple of this; of 1 where a device is missing."""
    max_head_dim: int | None = None
    """The most numbers of a head; None: any."""
    kv_layouts: tuple[KVLayout, ...] = (BY_SLOT,)
    """The fastest first; the first that fits the blocks and the model is used."""
    soft_caps: bool = False
    """It caps scores: see `AttentionSpec.soft_caps`."""
    sinks: bool = False
    """Its softmax has a sink for each query head: see `AttentionSpec.sinks`."""
    draft_layers: bool = False
    """It serves draft models: it hides first keys (`AttentionSpec.first_key`), can compute the later tokens of a draft
    alone (`Span.first_node`), and rows that see each other (`Span.sees_ahead`)."""
    attend_only: bool = False
    """Its `attend` serves wherever keys and values lie: a drafter's layers may read the target's, and write none."""
    graphs: tuple[GraphMode, ...] = ("piecewise",)
    """The graphs of steps that it serves. Piecewise ones need nothing of it; for full ones it has a `graph_plan`."""
    missing: str = ""
    """What it needs that this machine does not have, such as a newer torch: as in "it needs torch 2.13". Where this is
    not empty, it is not chosen, and naming it is an error that says so."""
    made_for: tuple[Phase, ...] = ()
    """Where an automatic choice prefers it."""
    asked_for: tuple[str, ...] = ()
    """Options of its plugin that only this backend obeys, as in cpu.kv=int8: the choice of another is then an error."""


class AttentionNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements of a configuration and its model on the backends. A model whose layers have heads of several
    sizes has a backend of the chosen kind for each of them."""

    device: str
    dtype: str
    block_size: int
    head_dim: int
    head_bytes: int
    graphs: str
    """--graphs, resolved. A backend without full graphs serves too; then no step is replayed from one."""
    drafts: bool
    """Is a drafter enabled?"""
    trees: bool
    """Do its drafts have branches?"""
    first_key: int = 0
    """The first position that has a key: 1 where a draft model has no key for the first token."""
    soft_caps: bool = False
    """Does a layer cap its scores?"""
    sinks: bool = False
    """Does a layer have sinks?"""
    attend_only: bool = False
    """Does a drafter read the target's keys and values?"""
    other_head_dims: tuple[int, ...] = ()
    """Sizes of heads in layers that have others than `head_dim`."""
    phases: tuple[Phase, ...] = PHASES
    """The phases to serve: all of the target, or decode alone for every row of a draft model."""

    @property
    def head_dims(self) -> tuple[int, ...]:
        """Of all layers."""
        return self.head_dim, *self.other_head_dims


class AttentionSpec(msgspec.Struct, frozen=True):
    """The numbers that a backend is built from. One that does not state `soft_caps` or `sinks` gets none."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    block_size: int
    sliding_windows: tuple[int | None, ...]
    """Per layer: how many keys a query sees, itself included; None for all."""
    kv_layout: KVLayout = BY_SLOT
    """Where it is another than by slot, the backend moves tokens itself (see `KVCache.mover`)."""
    first_key: int = 0
    """Keys of earlier positions are hidden from every query."""
    soft_caps: tuple[float | None, ...] = ()
    """Per layer: a scaled score s becomes cap * tanh(s / cap), before keys are hidden; None for none. Empty where no
    layer has one."""
    sinks: tuple[Any, ...] = ()  # tensors: declarations of plugins load this module, and must not load torch
    """Per layer: [heads] float32, for each query head the score of one more key, which every row sees, whatever the
    window, and whose value is 0: a row's weights are exp(s_i) / (exp(sink) + sum of exp(s_j)). None for none; empty
    where no layer has any."""

    def soft_cap(self, layer: int) -> float | None:
        return self.soft_caps[layer] if self.soft_caps else None

    def sinks_of(self, layer: int) -> Tensor | None:
        found: Tensor | None = self.sinks[layer] if self.sinks else None
        return found


class Arithmetic(NamedTuple):
    """Names for the order of a backend's operations: positions of equal names, and equal tokens, have equal bits.

    Part of the prefix cache's keys: a prompt reuses only blocks that it would have computed with the same bits.
    """

    prompt: str
    generated: str


class GraphPlan(Protocol):
    """An attention backend's plan for padded steps of one bucket. Plans may share memory: only the one that was cleared
    or loaded last is used."""

    plan: Any
    """What `forward` and `attend` get: the same object in every step."""

    def clear(self) -> None:
        """Make all rows padding."""
        ...

    def load(self, batch: Batch) -> str:
        """Make it the plan of this batch, whose rows are in `padded` already and come first. The others are padding:
        they attend to nothing, and what comes out for them is undefined. The answer is empty, or says why the batch
        does not fit: as in "a draft tree has more than 64 levels"; the plan is undefined then."""
        ...


class AttentionBackend(Protocol):
    """Attention of a batch's rows over the paged KV cache. Row r sees exactly its own path, itself included.

    Inherit from it: `arithmetic` and `backend_for` then answer for a backend that treats all positions alike.
    """

    name: str

    @property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic(self.name, self.name)

    def backend_for(self, batch: Batch) -> AttentionBackend:
        """The backend that serves the batch: this one, or one of those it is composed of, where that serves every row.
        A kernel set may have fused the model's layers with the latter."""
        return self

    @property
    def writable_cache(self) -> KVCache | None:
        """The cache, where it lies by slot and a caller may write a batch's keys and values there, as `KVCache.write`
        does, and call `attend`: a kernel set can then write them with the kernel that rotates them. None: all goes
        through `forward`."""
        return None

    def attend(self, layer: int, q: Tensor, plan: Any) -> Tensor:
        """`forward` behind its writing: the keys and values of all rows are in the cache. For backends that have a
        `writable_cache`, or state `attend_only`."""
        raise TypeError(f"attention {self.name} has no writable cache: call forward")

    def write(self, layer: int, k: Tensor, v: Tensor, batch: Batch) -> None:
        """Write the keys and values of the batch's rows, which attend to nothing: what a draft model computes of
        committed tokens without a pass over its layers. k, v: [T, kv_heads, head_dim]."""
        cache = self.writable_cache
        if cache is None:
            raise TypeError(f"attention {self.name} has no writable cache, and no write of its own")
        cache.write(layer, batch.slots, k, v)

    def mix(self, mixer: Mixer, rows: Tensor, kept: Tensor, tokens: PrecedingTokens) -> Tensor:
        """What layers have in place of attention: see `Mixer.mix`. Only what cuts recorded passes into pieces needs one
        of its own."""
        return mixer.mix(rows, kept, tokens)

    def mix_states(self, mixer: RecurrentMixer, rows: Tensor, layer: LayerStates, runs: Sequence[StateRun]) -> Tensor:
        """The same of recurrent layers: see `RecurrentMixer.mix`."""
        return mixer.mix(rows, layer, runs)

    def graph_plan(self, padded: Batch, requests: int) -> GraphPlan | None:
        """Memory for the plans of full graphs, of decode and verify steps that are padded to the rows of `padded`.
        `requests`: the most that such a step has. The plan's slots are those of `padded`, -1 for padding rows. None: it
        has no such plans."""
        return None

    def plan(self, batch: Batch) -> Any:
        """Work out, once per batch, what every layer needs. Called after the batch's blocks are allocated."""
        ...

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: Any) -> Tensor:
        """Write k, v: [T, kv_heads, head_dim] into the cache, attend q: [T, heads, head_dim] -> same shape.

        The cache must hold finite numbers only: see `KVCache.write`.
        """
        ...


@runtime_checkable
class AttentionFactory(Protocol):
    """Builds a backend for a model; has its name and capabilities before a model is loaded."""

    name: str
    capabilities: AttentionCapabilities

    def build(
        self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype
    ) -> AttentionBackend: ...
