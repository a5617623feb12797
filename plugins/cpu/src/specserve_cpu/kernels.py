"""The native kernel set: row-wise arithmetic in C++. Each row has a fixed order of operations, whatever the batch.

Rounds where the torch kernels do: every result is rounded to the model's dtype where torch would store it.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import torch

from specserve.api import ConfigError, KernelSet
from specserve.api.batch import HostAdapters
from specserve_cpu.adapters import PackedAdapter
from specserve_cpu.attention import native_module
from specserve_cpu.block_head import fuse_blocks
from specserve_cpu.coded import (
    CodedLinear,
    NotPackedInPieces,
    codable,
    codable_pieces,
    has_few_bits,
    inputs_of,
    is_codable,
    quantise_to_four,
)
from specserve_cpu.dlpack import dlpack
from specserve_cpu.draft_head import fuse_draft
from specserve_cpu.fused import FUSES, fuse
from specserve_cpu.gated_delta_net import DeltaCalls, native_mixer
from specserve_cpu.layer_weights import is_native_routing, routing_numbers
from specserve_cpu.linear import PackedLinear, ReadableLinear, contiguous_rows, pad_columns, quantise
from specserve_cpu.options import AUTO, GROUP_SIZES
from specserve_cpu.sampler import CpuSampler

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from specserve.api import (
        AdapterLimits,
        AdapterWeights,
        AttentionBackend,
        BlockPass,
        DraftPass,
        Mixer,
        RecurrentMixer,
    )
    from specserve.api.batch import Segment
    from specserve.api.models import (
        BlockHead,
        DecoderModel,
        DraftHead,
        ExpertsConfig,
        QuantisedWeight,
        StackedWeight,
    )
    from specserve_cpu import _native
    from specserve_cpu.block_head import FusedBlockPass
    from specserve_cpu.draft_head import FusedDraftPass
    from specserve_cpu.fused import FusedPass, SplitPass
    from specserve_cpu.gated_delta_net import NativeDeltaNet
    from specserve_cpu.options import Inputs, Weights


class CpuKernels(KernelSet):
    """`specserve.api.KernelSet` for float32 and bfloat16."""

    row_tile: int | None = None
    fuses = FUSES

    def __init__(
        self, machine: _native.Machine, dtype: str, weights: Weights = AUTO, activations: Inputs = AUTO
    ) -> None:
        self.machine = machine
        kept = f"-{weights}" if weights != AUTO else ""
        multiplied = {"auto": "", "int8": "-a8", "float": "-af"}[activations]
        self.name = f"cpu-{machine.instruction_set}{kept}{multiplied}"
        self.weights, self.activations = weights, activations
        self.sampler: CpuSampler = CpuSampler(machine)
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.native = native_module(self.dtype)
        self.delta_calls = DeltaCalls(machine)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.prepare_linear(weight, bias)(x)

    def prepare_linear(self, weight: Tensor, bias: Tensor | None) -> PackedLinear:
        group_size = GROUP_SIZES[self.weights]
        if group_size is None:
            return PackedLinear(self.machine, weight, bias)
        try:
            if self.weights == "int4":
                return self.coded(quantise_to_four(weight), bias)
            quantised = quantise(self.machine, weight, group_size)
        except ValueError:
            raise ConfigError(
                f"cpu.weights: only finite weights can be quantised; got {self.weights} and a weight of "
                f"{' x '.join(map(str, weight.shape))} with infinities or not-a-number. Set cpu.weights=auto, or use "
                "another checkpoint."
            ) from None
        return PackedLinear(self.machine, quantised, bias, inputs_of(quantised, self.activations))

    def coded(self, weight: QuantisedWeight, bias: Tensor | None) -> CodedLinear:
        return CodedLinear(self.machine, (weight,), bias, inputs_of(weight, self.activations))

    def keeps_codes(self, weight: QuantisedWeight) -> bool:
        """Whether integers times scales are multiplied as codes, by inputs that have scales of their own groups."""
        in_groups = weight.num_groups > 1 and inputs_of(weight, self.activations) == "int8"
        return has_few_bits(weight) or in_groups

    def prepare_router(self, weight: Tensor, bias: Tensor | None) -> PackedLinear:
        """In the model's dtype, whatever the option `weights` says."""
        return PackedLinear(self.machine, weight, bias)

    def prepare_quantised(self, weight: QuantisedWeight, bias: Tensor | None) -> PackedLinear | None:
        """Whatever the option `weights` says."""
        if is_codable(weight) and self.keeps_codes(weight):
            return self.coded(weight, bias)
        if weight.dtype == torch.bfloat16 and weight.group_size % 2 and weight.num_groups > 1:
            return None  # dot products take pairs of inputs
        return ReadableLinear(self.machine, weight, bias, inputs_of(weight, self.activations))

    def prepare_stacked(self, weight: StackedWeight, bias: Tensor | None) -> CodedLinear | None:
        """Whatever the option `weights` says."""
        parts = codable(weight)
        if parts is None:
            return None
        return CodedLinear(self.machine, parts, bias, inputs_of(weight.parts[0], self.activations))

    def prepare_pieces(self, pieces: Iterable[QuantisedWeight | Tensor], bias: Tensor | None) -> CodedLinear | None:
        """Whatever the option `weights` says. None for what `prepare_quantised` packs otherwise."""
        codable = codable_pieces(pieces)
        try:
            first = next(codable)
            if first.is_plain and not self.keeps_codes(first):
                return None
            return CodedLinear(self.machine, chain((first,), codable), bias, inputs_of(first, self.activations))
        except NotPackedInPieces:
            return None

    def prepare_mixer(self, mixer: Mixer | RecurrentMixer) -> NativeDeltaNet | None:
        return native_mixer(self.delta_calls, mixer, self.dtype)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        size = weight.shape[0]
        heads = contiguous_rows(x).reshape(len(x), -1, size) if x.dim() != 3 else contiguous_rows(x)
        out = torch.empty(heads.shape, dtype=x.dtype)
        self.native.rms_norm(self.machine, dlpack(heads), dlpack(weight), eps, dlpack(out))
        return out.view(x.shape)

    def rotary(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        out = x.contiguous() if not x.is_contiguous() else x.clone()
        self.native.apply_rope(self.machine, dlpack(out), dlpack(cos), dlpack(sin))
        return out

    def silu_and_multiply(self, gate_up: Tensor) -> Tensor:
        out = torch.empty((gate_up.shape[0], gate_up.shape[1] // 2), dtype=gate_up.dtype)
        self.native.silu_and_multiply(self.machine, dlpack(contiguous_rows(gate_up)), dlpack(out))
        return out

    def gelu_and_multiply(self, gate_up: Tensor) -> Tensor:
        out = torch.empty((gate_up.shape[0], gate_up.shape[1] // 2), dtype=gate_up.dtype)
        self.native.gelu_and_multiply(self.machine, dlpack(contiguous_rows(gate_up)), dlpack(out))
        return out

    def clamped_swiglu(self, gate_up: Tensor, gain: float, limit: float) -> Tensor:
        out = torch.empty((gate_up.shape[0], gate_up.shape[1] // 2), dtype=gate_up.dtype)
        self.native.clamped_swiglu(self.machine, dlpack(contiguous_rows(gate_up)), gain, limit, dlpack(out))
        return out

    def gate(self, x: Tensor, gates: Tensor) -> Tensor:
        out = torch.empty(x.shape, dtype=x.dtype)
        self.native.gate(self.machine, dlpack(contiguous_rows(x)), dlpack(contiguous_rows(gates)), dlpack(out))
        return out

    def choose_experts(
        self, logits: Tensor, config: ExpertsConfig, choice_bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """None: of sigmoids that are not rounded."""
        if not is_native_routing(config):
            return None
        chosen = torch.empty((len(logits), config.chosen), dtype=torch.int64)
        weights = torch.empty(chosen.shape, dtype=torch.float32)
        rows, numbers = dlpack(contiguous_rows(logits)), routing_numbers(config)
        bias = None if choice_bias is None else dlpack(choice_bias)
        native_module(logits.dtype).choose_experts(self.machine, rows, numbers, bias, dlpack(chosen), dlpack(weights))
        return chosen, weights

    def pack_adapter(self, weights: AdapterWeights) -> PackedAdapter:
        return PackedAdapter(self.machine, self.native, weights)

    def add_low_rank(self, projection: str, x: Tensor, out: Tensor, segments: Sequence[Segment]) -> None:
        parts = [
            (begin, end, adapter.parts[projection]) for begin, end, adapter in segments if projection in adapter.parts
        ]
        if parts:
            padded = pad_columns(x, max(part.padding for _, _, part in parts))
            native = [(begin, end, part.native) for begin, end, part in parts]
            self.native.add_low_rank(self.machine, contiguous_rows(padded), out, native)

    def graph_adapters(self, projections: Sequence[str], limits: AdapterLimits) -> HostAdapters:
        """A replay on a CPU makes the same calls again, with the segments of the step."""
        return HostAdapters()

    def fuse_draft(self, head: DraftHead, pieces: DraftPass, attention: AttentionBackend) -> FusedDraftPass | None:
        return fuse_draft(self.machine, self.sampler, head, pieces, attention)

    def fuse_blocks(self, head: BlockHead, pieces: BlockPass, attention: AttentionBackend) -> FusedBlockPass | None:
        return fuse_blocks(self.machine, self.sampler, head, pieces, attention)

    def fuse(self, model: DecoderModel, attention: AttentionBackend) -> FusedPass | SplitPass | None:
        return fuse(self.machine, model, attention)
