"""The interfaces that plugins implement and built-in parts implement alike.

Only shapes and promises; no implementation and, at run time, no torch. Letters: T rows of a batch or tile,
H hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import torch
    from torch import Tensor

    from specserve.batch import Batch
    from specserve.request import Request
    from specserve.sampling.sampler import Row
    from specserve.types import Draft, ForwardOutput, TokenLogprobs, Verdict


# --- model arithmetic -----------------------------------------------------------------------------------


class KernelSet(Protocol):
    """The row-wise arithmetic of a model on one device and dtype. Every function maps rows to rows."""

    name: str
    sampler: Sampler
    """From logits to tokens, on the device where `linear` leaves them."""
    row_tile: int | None
    """Rows come padded to this many, always, so that a row's bits cannot depend on its neighbours; None
    when the kernels promise that by construction and take any number of rows."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x: [T, in], weight: [out, in] -> [T, out]."""
        ...

    def prepare_linear(self, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor] | None:
        """The same map, bit for bit, with its weight packed once; None where packing gains nothing."""
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x: [..., n], weight: [n]. Accumulates in float32 (Zhang and Sennrich, 2019)."""
        ...

    def rotary(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: [T, heads, head_dim]; cos, sin: [T, 1, rotary_dim] float32, sin signed for the half-split form."""
        ...

    def silu_and_multiply(self, gate_up: Tensor) -> Tensor:
        """gate_up: [T, 2n] -> silu(first half) * second half, [T, n]."""
        ...

    def fuse(self, model: Any, attention: AttentionBackend) -> ForwardPass | None:
        """The decoder's layers in calls of this set's own, with the bits of its pieces; None: they are called one by
        one. Asked once, after all projections are sealed. A set declines where a projection has deltas, or where it
        does not know the attention backend."""
        ...


class ForwardPass(Protocol):
    """The way of a batch's rows through the model, in as many calls as hidden states are tapped."""

    def embed(self, batch: Batch) -> Tensor:
        """[T or more, H]: rows beyond T are padding that the other methods know."""
        ...

    def layers(self, x: Tensor, batch: Batch, plan: Any, begin: int, end: int) -> Tensor:
        """x: the input of layer `begin` -> that of layer `end`; `plan`: the attention backend's of this batch."""
        ...

    def logits(self, x: Tensor, batch: Batch) -> Tensor:
        """x: the last layer's output -> [scored rows, V] float32."""
        ...


Delta = "Callable[[Tensor, Tensor, slice], None]"
"""`delta(x, out, rows)` adds its part to `out` in place; x: [T, in], out: [T, out], rows: which rows of the batch."""


# --- sampling -------------------------------------------------------------------------------------------


class Sampler(Protocol):
    """From logits [n, V] float32 to tokens. What a row gets depends on that row alone, never on the rows beside it."""

    def argmax_tokens(self, logits: Tensor) -> list[int]:
        """Of every row; the first of equal maxima wins."""
        ...

    def target_tokens(self, logits: Tensor, rows: Sequence[Row]) -> list[int]:
        """The target token of each of `rows`; the logits stay as they are."""
        ...

    def token_logprobs(self, logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
        """Each row's log-probability of its token and its `counts[i]` best, by (value, lower id); logits: raw."""
        ...


class LogitEdits(Protocol):
    """A row of logits to which a few changes are made, one after the other. `ids`: array("q") of distinct tokens."""

    def penalize(
        self, ids: array[int], counts: array[float], repetition: float, presence: float, frequency: float, /
    ) -> None:
        """Each of `ids` was seen, counts[i] times in the output; counts: array("f")."""
        ...

    def shift(self, ids: array[int], values: array[float], /) -> None:
        """Add values[i] to the logit of ids[i]; values: array("f")."""
        ...

    def keep_only(self, ids: array[int], /) -> None:
        """All others become -inf."""
        ...

    def forbid(self, ids: array[int], /) -> None:
        """These become -inf."""
        ...


# --- attention ------------------------------------------------------------------------------------------


class AttentionCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend can do, stated once."""

    tree_mask: bool
    ragged: bool
    block_sizes: tuple[int, ...]
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    graphs: tuple[str, ...] = ()


class AttentionSpec(msgspec.Struct, frozen=True):
    """The numbers that a backend is built from."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    block_size: int
    sliding_windows: tuple[int | None, ...]
    """Per layer: how many keys a query sees, itself included; None for all."""


class AttentionBackend(Protocol):
    """Attention of a batch's rows over the paged KV cache. Row r sees exactly its own path, itself included."""

    name: str

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
    """A backend before it knows the model."""

    name: str
    capabilities: AttentionCapabilities

    def build(self, spec: AttentionSpec, cache: Any, device: torch.device, dtype: torch.dtype) -> AttentionBackend: ...


# --- speculation ----------------------------------------------------------------------------------------


class DrafterNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a drafter asks of the engine."""

    hidden_layers: tuple[int, ...] = ()
    """Layers whose output it reads in `ForwardOutput.hidden`; 0 is the embedding, num_layers the final norm's input,
    which may be written -1 here. The keys there are never negative."""
    kv_layers: int = 0
    """Layers of its own in the paged KV cache, after the target's."""


class Drafter(Protocol):
    """Guesses the next tokens of every request. A wrong guess costs time and never changes a token."""

    name: str
    needs: DrafterNeeds

    def start(self, request: Request) -> None:
        """The request was admitted: its prompt is known, nothing is computed yet."""
        ...

    def propose(
        self, batch: Batch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> Sequence[Draft | None]:
        """One draft or None per span; `limits[i]` bounds the nodes for span i and is 0 where none is wanted.

        Called after the verdict's tokens were appended to the requests. Spans of requests that ended in this step
        are still there: `stop` was called for them, their blocks are gone, their limit is 0.
        """
        ...

    def stop(self, request: Request) -> None:
        """The request ended, for whatever reason."""
        ...


class DraftPlanner(Protocol):
    """Decides how much to guess and how much of what was guessed to verify."""

    def limits(self, requests: Sequence[Request]) -> list[int]:
        """The most nodes worth drafting for each request."""
        ...

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | None]:
        """Which part of each request's draft to verify: at most `budget` nodes in all, parents with their children.

        `base_rows` counts the rows that the step computes in any case.
        """
        ...

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        """After the step: what was accepted, and how long the step took."""
        ...


class Verifier(Protocol):
    """Turns logits into decisions. The default is drafter-invariant; a lossy one must say so."""

    name: str
    lossless: bool

    def verify(self, batch: Batch, output: ForwardOutput) -> Verdict: ...


class ProcessorState(Protocol):
    """A logits processor's state for one request.

    One that changes a few logits of a row may say which, in a method `edit(edits: LogitEdits, path) -> None`: a native
    sampler then spares it the call of `apply` and the row its way through torch. Both must do the same.
    """

    def apply(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        """logits: [V] float32, may be changed in place; `path`: the guesses from the committed tokens to this row."""
        ...

    def commit(self, tokens: Sequence[int]) -> None:
        """These tokens are final."""
        ...


class LogitsProcessor(Protocol):
    """Makes a state for the requests that need it."""

    def start(self, request: Request, vocab_size: int) -> ProcessorState | None: ...


# --- watching -------------------------------------------------------------------------------------------


class Metric(msgspec.Struct, frozen=True):
    """One sample for /metrics: kind is counter or gauge; labels in a fixed order."""

    name: str
    help: str
    kind: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


class Observer(Protocol):
    """Learns and counts after commit."""

    def observe(self, batch: Batch, verdict: Verdict) -> None: ...

    def metrics(self) -> Iterable[Metric]: ...


class ResolvedModel(msgspec.Struct, frozen=True):
    """What a request's `model` names: the adapter's version keys caches through `namespace`."""

    name: str
    parent: str | None
    namespace: str
    release: Any = None
    """Called once when the request ends: unpins the adapter. None when nothing is pinned."""


class Tokenizer(Protocol):
    """What the engine and the server need of a tokenizer."""

    eos_token_ids: tuple[int, ...]
    vocab_size: int

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...

    def stream(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> TextStream:
        """A decoder that continues after the prompt."""
        ...


class TextStream(Protocol):
    """Incremental decoding that never cuts a UTF-8 character."""

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty while a character is incomplete."""
        ...


class Projection(Protocol):
    """A named linear map of the model: one kernel and any number of additive deltas."""

    name: str
    in_features: int
    out_features: int
    weight: Tensor
    """[out, in]; read it to pack it, in `adapt_model`: afterwards the core's own kernel packs it and lets go of it."""
    bias: Tensor | None
    packed: Any
    """What the kernel set packed it into; None where it did not, or where somebody else set the kernel."""
    parts: Mapping[str, slice]
    """Rows of the output by the checkpoint's own names: a fused qkv has q_proj, k_proj, v_proj."""

    @property
    def has_deltas(self) -> bool:
        """A kernel that fuses this projection with its neighbours must decline when this is true."""
        ...

    def add_delta(self, delta: Any) -> None: ...

    def set_kernel(self, kernel: Any, owner: str) -> None: ...

    def seal(self, prepare: Any) -> None: ...


class AdaptableModel(Protocol):
    """What `adapt_model` receives."""

    projections: Mapping[str, Projection]
    num_layers: int
    vocab_size: int
