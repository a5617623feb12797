"""The arithmetic of a model, and the parts of a model that plugins may change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import torch
    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.lora_plan import LoraPlan, Segment
    from specserve.batch.mixer_inputs import LoadedRuns
    from specserve.protocols.attention import AttentionBackend
    from specserve.protocols.draft_pass import BlockPass, DraftPass
    from specserve.protocols.graphs import AdapterLimits, GraphAdapters, RunLimits
    from specserve.protocols.lowrank import AdapterWeights
    from specserve.protocols.mixer import Mixer
    from specserve.protocols.part import WholeMap
    from specserve.protocols.quantised import QuantisedWeight, StackedWeight
    from specserve.protocols.recurrent import RecurrentMixer
    from specserve.protocols.sampling import Sampler


class KernelSet(ABC):
    """The row-wise arithmetic of a model on one device and dtype. Every function maps rows to rows.

    What packs, records or fuses has a default: the set does not.
    """

    name: str
    sampler: Sampler
    """From logits to tokens, on the device where `linear` leaves them."""
    fuses: frozenset[str] = frozenset()
    """What layers may have beyond those of a Llama for `fuse` to be asked, by the names of
    `specserve.models.config.ModelConfig.beyond_llama`."""
    row_tile: int | None
    """Every call gets exactly this many rows, padded, so that a row's bits cannot depend on its neighbours; None when
    the kernels guarantee that by construction and take any number of rows."""

    @abstractmethod
    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x: [T, in], weight: [out, in] -> [T, out]."""

    @abstractmethod
    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x: [..., n], weight: [n]. Accumulates in float32 (Zhang and Sennrich, 2019). The normed numbers are rounded
        to x's dtype and multiplied; where the weight alone is float32, they are multiplied first and rounded once."""

    @abstractmethod
    def rotary(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: [T, heads, head_dim]; cos, sin: [T, 1, rotary_dim] float32, sin signed for the half-split form."""

    @abstractmethod
    def silu_and_multiply(self, gate_up: Tensor) -> Tensor:
        """gate_up: [T, 2n] -> silu(first half) * second half, [T, n]."""

    def gelu_and_multiply(self, gate_up: Tensor) -> Tensor:
        """The same with GELU by its tanh approximation (Hendrycks and Gimpel, 2016). This default takes a row at a
        time: torch computes some numbers of a larger call another way."""
        import torch  # declarations of plugins load this module, and must not load torch
        import torch.nn.functional as F

        size = gate_up.shape[-1] // 2
        rows = [F.gelu(row[:size], approximate="tanh").mul_(row[size:]) for row in gate_up]
        return torch.stack(rows) if rows else gate_up.new_empty((0, size))

    def clamped_swiglu(self, gate_up: Tensor, gain: float, limit: float) -> Tensor:
        """gate_up: [T, 2n] -> [T, n]: see `specserve.models.config.SwigluClamp`. The gate's part is computed in float32
        and rounded, the up's is rounded, and so is their product. This default takes a row at a time."""
        gates, ups = gate_up.chunk(2, -1)
        out = ups.clamp(-limit, limit).add_(1.0)
        for gate, to in zip(gates, out, strict=True):
            wide = gate.clamp(max=limit).float()
            to.mul_((wide / (-gain * wide).exp_().add_(1.0)).to(gate.dtype))
        return out

    def gate(self, x: Tensor, gates: Tensor) -> Tensor:
        """x: [T, n]; gates: [T, m], each of n / m neighbours in x -> x times the sigmoids of the gates, [T, n], fresh.
        Sigmoids and products are rounded each. This default takes a row at a time."""
        wide = x.view(len(x), gates.shape[1], -1)
        out = x.new_empty(wide.shape)
        for row, opened, to in zip(wide, gates, out, strict=True):
            to.copy_(row * opened.sigmoid()[:, None])
        return out.flatten(1)

    def choose_experts(
        self, logits: Tensor, config: Any, choice_bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """logits: [T, E] in the model's dtype or in float32; config: a
        `specserve.models.experts_config.ExpertsConfig`, which says how; choice_bias: [E] float32, where it says so.
        -> experts [T, k] int64, and their weights [T, k] float32. None: `specserve.models.routing` does it."""
        return None

    @abstractmethod
    def pack_adapter(self, weights: AdapterWeights) -> Any:
        """The adapter as this set reads it, for `Segment.adapter`; it may share memory with `weights`."""

    @abstractmethod
    def add_low_rank(self, projection: str, x: Tensor, out: Tensor, segments: Sequence[Segment]) -> None:
        """x: [T, in]; to the rows of each segment of out: [T, out] what its adapter adds to the projection. Rows in no
        segment stay as they are, and a row's bits do not depend on the other segments."""

    def prepare_linear(self, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor] | None:
        """The same map as `linear`, bit for bit, with its weight packed once; None where packing gains nothing."""
        return None

    def prepare_router(self, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor] | None:
        """The map of a router, [experts, in]: `prepare_linear`, unless that rounds weights to fewer bits than the
        model's dtype has. A router's keep it: other logits choose other experts."""
        return self.prepare_linear(weight, bias)

    def prepare_quantised(self, weight: QuantisedWeight, bias: Tensor | None) -> Callable[[Tensor], Tensor] | None:
        """The map of a checkpoint's weight of 8 bits or fewer without offsets, whose scales are a tensor, packed as it
        is. None: it is turned into the model's dtype."""
        return None

    def prepare_stacked(self, weight: StackedWeight, bias: Tensor | None) -> Callable[[Tensor], Tensor] | None:
        """As `prepare_quantised`, for any quantised weights, which may have offsets and scales of two factors. What it
        returns may be a `specserve.protocols.PackedRows`."""
        return None

    def prepare_pieces(
        self, pieces: Iterable[QuantisedWeight | Tensor], bias: Tensor | None
    ) -> Callable[[Tensor], Tensor] | None:
        """As `prepare_stacked`, of a weight that is read from its file while it is packed, so that little of it lies
        unpacked in memory. pieces: its rows in their order, some million numbers each; a tensor where the file has one.
        None, after however many pieces: the set wants the whole weight, by the functions above."""
        return None

    def prepare_mixer(self, mixer: Mixer | RecurrentMixer) -> Mixer | RecurrentMixer | None:
        """A layer's mixer by this set's kernels, which keeps the same numbers of tokens or requests; None: as it is."""
        return None

    def graph_runs(self, mixers: Sequence[RecurrentMixer], limits: RunLimits) -> LoadedRuns | None:
        """Memory for the runs of recorded passes, as the mixers of all recurrent layers read them. None: such passes
        are recorded in pieces."""
        return None

    def graph_adapters(self, projections: Sequence[str], limits: AdapterLimits) -> GraphAdapters | None:
        """Memory for `add_low_rank` in recorded passes, for adapters of these projections. None: steps with adapters
        are not recorded."""
        return None

    def fuse(self, model: Any, attention: AttentionBackend) -> ForwardPass | None:
        """The decoder's layers fused into calls of this set, with the same bits as its pieces; None: the pieces are
        called. Called after all projections are final, for every backend that may serve a batch, and again for graphs,
        whose passes must not share memory with it. A set declines
        where a projection has deltas of an unknown kind, or the attention backend is unknown to it."""
        return None

    def fuse_draft(self, head: Any, pieces: DraftPass, attention: AttentionBackend) -> DraftPass | None:
        """A pass of the `specserve.models.draft_head.DraftHead` with the same bits as its pieces, which may serve what
        the fused one does not; None: the pieces are called."""
        return None

    def fuse_blocks(self, head: Any, pieces: BlockPass, attention: AttentionBackend) -> BlockPass | None:
        """A pass of the `specserve.models.block_head.BlockHead` with the draft tokens of its pieces, which may serve
        what the fused one does not; None: the pieces are called."""
        return None


class ForwardPass(ABC):
    """A forward pass of a batch's rows."""

    def reserve(self, rows: int) -> None:  # noqa: B027 (a default)
        """Called before graphs are recorded, with the rows of the largest: later steps of no more rows must not move
        what the pass keeps between its calls."""

    @abstractmethod
    def embed(self, batch: Batch) -> Tensor:
        """[T or more, H]: rows beyond T are padding that the other methods expect."""

    @abstractmethod
    def layers(
        self, x: Tensor, batch: Batch, plan: Any, taps: Mapping[int, Tensor] = ..., aux: Tensor | None = None
    ) -> Tensor:
        """x: what `embed` gave -> the last layer's output, of the same shape; `plan`: the attention backend's of this
        batch. taps: [T, H] tensors to which the inputs of these layers are copied, and for the number of layers the
        last output. aux: of x's shape, the auxiliary input of layers with an `aux_norm`."""

    @abstractmethod
    def logits(self, x: Tensor, batch: Batch) -> Tensor:
        """x: the last layer's output -> [scored rows, V] float32."""


Kernel: TypeAlias = "Callable[[Tensor, Tensor, Tensor | None], Tensor]"
"""`kernel(x, weight, bias) -> out`; out is a fresh tensor. A kernel may keep a packed copy and ignore the weight."""
Delta: TypeAlias = "Callable[[Tensor, Tensor, slice, LoraPlan | None], None]"
"""`delta(x, out, rows, lora)` adds its part to `out` in place; x: [T, in], out: [T, out], rows: which rows of the
batch, lora: the batch's plan. `specserve.models.lowrank_delta.LowRankDelta` is the one that kernel sets may fuse."""


class AdaptableProjection(Protocol):
    """A named linear map of the model: one kernel and any number of additive deltas."""

    name: str
    in_features: int
    out_features: int
    bias: Tensor | None
    packed: Callable[[Tensor], Tensor] | None
    """The map with its packed weight; None where nothing is packed, or where a plugin set the kernel."""
    parts: Mapping[str, slice]
    """Rows of the output by the checkpoint's own names: a fused qkv has q_proj, k_proj, v_proj. Libraries' models have
    whole paths: model.layers.0.self_attn.q_proj."""
    whole: WholeMap
    """The map that this is a part of, where several processes compute the model; else this one. A kernel that fuses the
    projection with others must decline where it has a `combine`."""

    @property
    def weight(self) -> Tensor:
        """[out, in]. Read it in `adapt_model`: afterwards the core's own kernel packs the weight and frees the
        original."""
        ...

    @property
    def deltas(self) -> Sequence[Delta]:
        """A kernel that fuses this projection with others must decline where one of them is of an unknown kind."""
        ...

    def add_delta(self, delta: Delta) -> None:
        """From now on, whatever the others add."""
        ...

    def set_kernel(self, kernel: Kernel, owner: str) -> None:
        """Compute the map with this kernel. Raises PluginError where another owner has set one."""
        ...

    def quantise(self, to: Callable[[Tensor], QuantisedWeight]) -> None:
        """Before `finalize`: a weight that its file has not quantised becomes `to` of it. A router's stays as it is."""
        ...

    def finalize(self, kernels: KernelSet) -> None:
        """The core's call, once all plugins have adapted the model: packs the weight, unless a kernel was set."""
        ...


class AdaptableModel(Protocol):
    """What `adapt_model` receives."""

    projections: Mapping[str, AdaptableProjection]
    kernels: KernelSet
    num_layers: int
    hidden_size: int
    vocab_size: int
    device: torch.device
    dtype: torch.dtype

    def pack_adapter(self, weights: AdapterWeights) -> Any:
        """weights: of the whole model. What `Segment.adapter` is for its rows, until `free_adapter`."""
        ...

    def free_adapter(self, packed: object) -> None:
        """No later batch has it."""
        ...
