"""A model whose layers are those of the engine's own decoders, proved on its numbers: the engine then computes it.

The class's own modules are the reference. Rows of random tokens go through them and through the decoder that is made of
the same packed products and norms, with one rotation: every number must be the same, bit for bit. The engine rotates in
float32, which transformers rounds to the model's dtype; that is the one difference.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api.models import NO_BATCH, DecoderModel, RotaryTable, inference
from specserve_transformers.own_weights import own_weights
from specserve_transformers.rotations import PositionTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from specserve.api import KernelSet
    from specserve_transformers.install import Installer
    from specserve_transformers.own_weights import OwnWeights
    from specserve_transformers.refusals import Geometry
    from specserve_transformers.stages import Stages

log = logging.getLogger(__name__)

ROWS = 32
"""Of the proof: a whole tile, or any number with kernels that take any."""
SEEDS = (1, 2)
"""Of the tokens and positions that are tried."""


class Layer(NamedTuple):
    """What a layer gave attention: [T, heads, d], and [T, kv_heads, d] twice."""

    q: Tensor
    k: Tensor
    v: Tensor


class Trial:
    """One pass of the class's own modules. Attention answers with random numbers that do not depend on its inputs."""

    def __init__(self, stages: Stages, installed: Installer, seed: int) -> None:
        self.numbers = torch.Generator().manual_seed(seed)
        device = installed.request.device
        size: int = stages.embedding.num_embeddings  # type: ignore[assignment]
        self.ids = torch.randint(size, (ROWS,), generator=self.numbers).to(device)
        positions = torch.randint(installed.length, (ROWS,), generator=self.numbers)
        positions[0] = installed.length - 1
        self.positions = positions.to(device)
        self.layers: list[Layer] = []
        self.answers: list[Tensor] = []
        step = installed.step
        step.attend, step.at, step.taps = self.attend, NO_BATCH, {}
        self.out = stages.layers(self.ids, self.positions)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert layer == len(self.layers)
        self.layers.append(Layer(q.clone(), k.clone(), v.clone()))
        answer = torch.randn(q.shape, generator=self.numbers).to(q.device, q.dtype)
        self.answers.append(answer)
        return answer


@inference
def own_decoder(stages: Stages, installed: Installer, geometry: Geometry, kernels: KernelSet) -> DecoderModel | None:
    """None where the engine's own layers do not give these numbers. All projections are packed."""
    weights = own_weights(stages, installed, geometry)
    if weights is None:
        return None
    tables = list(tables_of(installed))
    trials = [Trial(stages, installed, seed) for seed in SEEDS]
    for scale in (1.0, stages.hidden_size**0.5):
        plain = weights.decoder(kernels, scale, [None] * len(weights.weights.layers))
        first, second = (rotations_of(plain, trial, tables, weights) for trial in trials)
        if first is not None and first == second:
            log.info("%s: the engine computes its layers, which are those of its own decoders", stages.architecture)
            return weights.decoder(kernels, scale, [None if index is None else tables[index].wide for index in first])
    return None


class Table(NamedTuple):
    """cos, sin of every position: as the class may have them, in the model's dtype or float32; and as the engine has
    them."""

    cos: Tensor
    sin: Tensor
    wide: RotaryTable


def tables_of(installed: Installer) -> Iterator[Table]:
    """Those that hold a cosine and a sine for a part of a head."""
    seen: set[object] = set()
    for path, module in installed.model.named_modules():
        for call in installed.found.calls_of(path) if isinstance(module, PositionTable) else ():
            assert isinstance(module, PositionTable)
            key = (path, *(each for each in (*call.args, *call.kwargs.values()) if not isinstance(each, torch.Tensor)))
            found = module.of_every_position(call.args, call.kwargs, torch.float32)
            if key not in seen and isinstance(found, tuple) and len(found) == len(("cos", "sin")):
                seen.add(key)
                cos, sin = found
                yield from as_rotations(cos, sin, installed.request.dtype)


def as_rotations(cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Iterator[Table]:
    """cos, sin: [1, positions, n] float32. dtype: the model's."""
    c, s = (each[0].unsqueeze(1) for each in (cos, sin))
    half = c.shape[-1] // 2
    signed = torch.cat((-s[..., :half], s[..., half:]), -1)
    wide = RotaryTable(c.contiguous(), signed)
    for each in {torch.float32, dtype}:
        yield Table(c.to(each), signed.to(each), wide)


def rotations_of(
    decoder: DecoderModel, trial: Trial, tables: Sequence[Table], weights: OwnWeights
) -> list[int | None] | None:
    """By layer the table with which it has the trial's numbers, None for no rotation; None where one has not."""
    found = []
    x = decoder.embed(trial.ids)
    for layer, (expected, answer) in enumerate(zip(trial.layers, trial.answers, strict=True)):
        q, k, v, _ = decoder.attention_input(layer, x, None, NO_BATCH)
        if not torch.equal(v, expected.v):
            return None
        for index in (None, *range(len(tables))):
            table = None if index is None else tables[index]
            if all(
                torch.equal(rotated(each, table, trial.positions), other)
                for each, other in ((q, expected.q), (k, expected.k))
            ):
                found.append(index)
                break
        else:
            return None
        x = decoder.attention_output(layer, x, answer, NO_BATCH)
    return found if torch.equal(weights.norm(x), trial.out) else None


def rotated(x: Tensor, table: Table | None, positions: Tensor) -> Tensor:
    """x: [T, heads, d], as classes of transformers rotate it."""
    if table is None:
        return x
    cos, sin = table.cos.index_select(0, positions), table.sin.index_select(0, positions)
    size = cos.shape[-1]
    if size > x.shape[-1] or size % 2:
        return x
    part = x[..., :size]
    out = (part * cos + part.roll(size // 2, -1) * sin).to(x.dtype)
    return torch.cat((out, x[..., size:]), -1)
