"""What the kernels of gated delta nets are told of a step: where each token's inputs lie, and in which order a run's
tokens go into its state. All layers share it.

A place is a row of the step, or -1 - i for the i-th trail, and behind all trails for the i-th token of a window.
Letter: L taps.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api.batch import StateRun, copy_into, copy_to_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import RunLimits

NOWHERE = -1
FIELDS_BESIDE_TAPS = 3
RUN_FIELDS = 3
OPERATIONS_PER_ROW = 8
"""Room in recorded steps for the paths of branching drafts, which are walked again for each branch."""


class StateShape(NamedTuple):
    taps: int
    nodes: int
    """Trails of a slot."""
    num_trails: int
    """Of all slots."""

    @property
    def fields(self) -> int:
        return self.taps + FIELDS_BESIDE_TAPS


class HostTables(NamedTuple):
    """In the host's memory, int64."""

    tokens: Tensor
    """[N, L + 3]: the place of each token, of the L - 1 before it, the nearest first, two slots for the state behind
    it, of which the first is the target of its run, and the trail that it leaves; NOWHERE for none."""
    operations: Tensor
    """[M]: twice a token, plus 1 where its path begins behind the last committed token again."""
    runs: Tensor
    """[R, 3]: the first operation, how many, and the slot of the source."""


class DeviceTables(NamedTuple):
    """`HostTables` on the device, with the number of tokens, [1]. `num_tokens`, `num_runs`: for how many kernels are
    launched."""

    total: Tensor
    tokens: Tensor
    operations: Tensor
    runs: Tensor
    num_tokens: int
    num_runs: int


class ListedRuns(list[StateRun]):
    """No runs, and the tables that recorded kernels read."""

    def __init__(self, tables: DeviceTables) -> None:
        super().__init__()
        self.tables = tables


def lay_out(runs: Sequence[StateRun], shape: StateShape) -> HostTables:
    tokens, operations, of_runs = array("q"), array("q"), array("q")
    for run in runs:
        first = 2 * (len(tokens) // shape.fields)
        of_run = tokens_of(run, shape)
        num_committed = len(of_run) // shape.fields - len(run.parents)
        order = [*range(0, 2 * num_committed, 2), *walk(run.parents, num_committed)]
        of_runs.extend((len(operations), len(order), run.states.source))
        operations.extend(first + each for each in order)
        tokens.extend(of_run)
    return HostTables(
        as_tensor(tokens).view(-1, shape.fields), as_tensor(operations), as_tensor(of_runs).view(-1, RUN_FIELDS)
    )


def as_tensor(numbers: array[int]) -> Tensor:
    """int64, over the array's memory."""
    return torch.frombuffer(numbers, dtype=torch.int64) if numbers else torch.empty(0, dtype=torch.int64)


def tokens_of(run: StateRun, shape: StateShape) -> list[int]:
    """The fields of one token behind the other: what was accepted before, the committed tokens, the draft tokens."""
    states, before = run.states, shape.taps - 1
    window, trail = -1 - shape.num_trails - states.source * before, -1 - states.source * shape.nodes
    path = [window - i for i in range(before)]
    out: list[int] = []
    for place in (*(trail - node for node in states.followed), *range(run.first_row, run.first_row + run.known)):
        path = [place, *path[:before]]
        out += (*path, NOWHERE, NOWHERE, NOWHERE)
    assert out, "a run computes a committed token"
    out[-FIELDS_BESIDE_TAPS] = states.target
    for position, slot in states.saved:
        out[(position - states.position) * shape.fields - FIELDS_BESIDE_TAPS + 1] = slot
    paths: list[list[int]] = []
    for node, parent in enumerate(run.parents):
        behind = path if parent < 0 else paths[parent]
        paths.append([run.first_row + run.known + node, *behind[:before]])
        out += (*paths[-1], NOWHERE, NOWHERE, states.target * shape.nodes + node)
    return out


def walk(parents: Sequence[int], first: int) -> list[int]:
    """The operations of draft tokens whose first is token `first`. One that does not follow the one before it is
    reached from the last committed token again."""
    order: list[int] = []
    for node, parent in enumerate(parents):
        if parent == node - 1:
            order.append(2 * (first + node))
            continue
        path = [node]
        while parent >= 0:
            path.append(parent)
            parent = parents[parent]
        path.reverse()
        order += [2 * (first + each) + (i == 0) for i, each in enumerate(path)]
    return order


def on_device(host: HostTables, device: torch.device) -> DeviceTables:
    """In one copy."""
    count = torch.tensor([len(host.tokens)])
    packed = copy_to_device(torch.cat((count, *(table.flatten() for table in host))), device)
    total, tokens, operations, of_runs = packed.split_with_sizes((1, *(table.numel() for table in host)))
    return DeviceTables(total, tokens, operations, of_runs, len(host.tokens), len(host.runs))


class LoadedTables:
    """`specserve.api.batch.LoadedRuns`: tables at addresses that stay. Runs that the step lacks have no operations."""

    def __init__(self, shape: StateShape, limits: RunLimits, device: torch.device) -> None:
        self.shape, self.device = shape, device
        self.num_tokens = limits.rows + limits.requests * limits.nodes
        self.num_operations = self.num_tokens + OPERATIONS_PER_ROW * limits.rows
        self.sizes = 1, self.num_tokens * shape.fields, self.num_operations, limits.requests * RUN_FIELDS
        self.memory = torch.zeros(sum(self.sizes), dtype=torch.int64, device=device)
        total, tokens, operations, of_runs = self.memory.split_with_sizes(self.sizes)
        tables = DeviceTables(total, tokens, operations, of_runs, self.num_tokens, limits.requests)
        self.runs = ListedRuns(tables)

    def clear(self) -> None:
        self.memory.zero_()

    def load(self, runs: Sequence[StateRun]) -> str:
        host = lay_out(runs, self.shape)
        if len(host.tokens) > self.num_tokens or len(host.operations) > self.num_operations:
            return "its draft trees branch more often than recorded runs of gated delta nets have room for"
        packed = torch.zeros(sum(self.sizes), dtype=torch.int64)
        packed[0] = len(host.tokens)
        for part, table in zip(packed.split_with_sizes(self.sizes)[1:], host, strict=True):
            part[: table.numel()] = table.flatten()
        copy_into(self.memory, packed, self.device)
        return ""
