"""Gated delta nets of a layer in four launches. States, windows and trails are those of the core's `GatedDeltaNet`;
sums have an order of their own. Imports Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import RecurrentMixer
from specserve_cuda.kernels.delta_net_kernels import (
    delta_conv_kernel,
    delta_gates_kernel,
    delta_recurrence_kernel,
    gated_norm_kernel,
)
from specserve_cuda.kernels.delta_net_tables import ListedRuns, StateShape, lay_out, on_device
from specserve_cuda.launch import Launch, blocks, dense, power_of_2

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from specserve.api import LayerStates
    from specserve.api.batch import StateRun
    from specserve.api.models import GatedDeltaNet
    from specserve_cuda.kernels.delta_net_tables import DeviceTables

CHANNEL_BLOCK = 512
VALUE_BLOCK = 32
"""Columns of a state that a program has."""


class SharedTables:
    """Those of a step, which all layers read: laid out and copied once."""

    def __init__(self) -> None:
        self.runs: Sequence[StateRun] | None = None
        self.shape: StateShape | None = None
        self.tables: DeviceTables | None = None

    def of(self, runs: Sequence[StateRun], shape: StateShape, device: torch.device) -> DeviceTables:
        if isinstance(runs, ListedRuns):
            return runs.tables
        if self.tables is None or runs is not self.runs or shape != self.shape:
            self.runs, self.shape = runs, shape
            self.tables = on_device(lay_out(runs, shape), device)
        return self.tables


class DeltaLaunches:
    """A layer's kernels, for a memory of states of this shape. `rows`: numbers of a row."""

    def __init__(self, mixer: GatedDeltaNet, shape: StateShape) -> None:
        config = mixer.config
        row = mixer.trail_width + mixer.out_features
        reach, heads = max(1, config.taps - 1), config.value_heads  # a window of no token is never read
        places = {
            "ROW": row, "TRAIL": mixer.trail_width, "STATE": mixer.state_size,
            "WINDOW": heads * config.key_dim * config.value_dim, "CHANNELS": config.channels, "TAPS": config.taps,
            "REACH": reach, "NUM_TRAILS": shape.num_trails,
        }  # fmt: skip
        self.gates = Launch(
            delta_gates_kernel, {**places, "VALUE_HEADS": heads, "BLOCK": power_of_2(heads)}, num_warps=1
        )
        self.convolve = Launch(delta_conv_kernel, {**places, "BLOCK": CHANNEL_BLOCK}, num_warps=4)
        self.values = min(VALUE_BLOCK, power_of_2(config.value_dim))
        sizes: dict[str, int | bool] = {
            "STATE": mixer.state_size, "TAPS": config.taps, "KEY_HEADS": config.key_heads, "VALUE_HEADS": heads,
            "KEY_DIM": config.key_dim, "VALUE_DIM": config.value_dim, "KEYS": power_of_2(config.key_dim),
            "VALUES": self.values,
        }  # fmt: skip
        self.recur = Launch(delta_recurrence_kernel, sizes, num_warps=4)
        norm: dict[str, int | bool] = {
            "ROW": row, "GATE": mixer.trail_width, "VALUE_HEADS": heads, "VALUE_DIM": config.value_dim,
            "BLOCK": power_of_2(config.value_dim),
        }  # fmt: skip
        self.norm = Launch(gated_norm_kernel, norm, num_warps=1)


class TritonDeltaNet(RecurrentMixer):
    """mixer: the core's, whose weights it reads."""

    def __init__(self, mixer: GatedDeltaNet, shared: SharedTables) -> None:
        self.config, self.mixer, self.shared = mixer.config, mixer, shared
        self.state_size, self.trail_width, self.out_features = mixer.state_size, mixer.trail_width, mixer.out_features
        self.taps, self.norm = dense(mixer.taps), dense(mixer.norm)
        self.dt_bias, self.rate = dense(mixer.dt_bias), dense(mixer.rate)
        self.launches: dict[StateShape, DeltaLaunches] = {}

    def mix(self, rows: Tensor, layer: LayerStates, runs: Sequence[StateRun]) -> Tensor:
        config, (states, trails, _) = self.config, layer
        shape = StateShape(config.taps, trails.shape[1], trails.shape[0] * trails.shape[1])
        if shape not in self.launches:
            self.launches[shape] = DeltaLaunches(self.mixer, shape)
        launches, tables = self.launches[shape], self.shared.of(runs, shape, rows.device)
        rows, heads, num_tokens = dense(rows), config.value_heads, tables.num_tokens
        mixed = rows.new_empty((num_tokens, config.channels))
        gates = states.new_empty((num_tokens, 2 * heads))
        out = rows.new_empty((len(rows), self.out_features))
        places = tables.tokens, tables.total
        launches.gates(num_tokens, 1, rows, states, trails, self.dt_bias, self.rate, *places, gates)
        launches.convolve(
            num_tokens, blocks(config.channels, CHANNEL_BLOCK), rows, states, trails, self.taps, *places, mixed
        )
        launches.recur(
            tables.num_runs * heads, blocks(config.value_dim, launches.values),
            states, mixed, gates, tables.tokens, tables.operations, tables.runs, out, config.key_dim**-0.5,
        )  # fmt: skip
        launches.norm(len(rows) * heads, 1, out, rows, self.norm, config.norm_eps)
        return out
