"""Quantised weights are read from their files while they are packed: little of them lies unpacked in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from coded_checkpoints import MIXED, CodedWeights, formats, write_coded
from coded_forms import FORMS, coded
from torch import Tensor

from specserve.models import checkpoint as checkpoints
from specserve.models.checkpoint import Checkpoint
from specserve.models.loader import ModelLoader
from specserve.models.open_weights import open_weights
from specserve.models.quantised import dense
from specserve.protocols import quantised
from specserve.protocols.part import TensorPart
from specserve.protocols.quantised import QuantisedWeight
from specserve_cpu._native import Machine, instruction_sets
from specserve_cpu.kernels import CpuKernels
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from specserve.models.decoder import DecoderModel
    from specserve.models.weight_format import WeightFormat

SMALL = 1 << 12
METHOD = CodedWeights(MIXED | {"embed_tokens": FORMS["6 bits, signed steps"]})


@pytest.fixture
def coded_model(tmp_path: Path) -> Path:
    return write_coded(write_checkpoint(tmp_path / "source"), tmp_path / "coded")


def loaded(path: Path, of: Sequence[WeightFormat]) -> DecoderModel:
    kernels = CpuKernels(Machine(instruction_sets()[0], 1), "float32")
    model = ModelLoader(formats=of).load_decoder(
        path, kernels=kernels, dtype="float32", device="cpu", max_model_len=None
    )
    for projection in model.projections.values():
        projection.finalize(kernels)
    return model


def test_no_more_than_a_piece_of_a_weight_is_unpacked_at_once(
    coded_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = loaded(coded_model, formats(METHOD))
    read: list[int] = []
    rows = Checkpoint.rows

    def recorded(self: Checkpoint, *args: object) -> Tensor | QuantisedWeight:
        found = rows(self, *args)  # type: ignore[arg-type]
        read.append(0 if isinstance(found, Tensor) else len(found.integers))
        return found

    monkeypatch.setattr(Checkpoint, "rows", recorded)
    monkeypatch.setattr(checkpoints, "NUMBERS_AT_ONCE", SMALL)
    model = loaded(coded_model, formats(METHOD))
    assert max(read) == 64
    assert max(projection.out_features for projection in model.projections.values()) == 640
    for name, projection in model.projections.items():
        x = torch.randn(3, projection.in_features)
        assert torch.equal(projection(x), whole.projections[name](x)), name
    ids = torch.arange(320)
    assert torch.equal(model.embed(ids), whole.embed(ids))


PARTS = {
    "the whole": TensorPart(),
    "some rows": TensorPart(rows=slice(40, 300)),
    "every second row": TensorPart(rows=slice(1, None, 2)),
    "some rows of some columns": TensorPart(rows=slice(None, 200), columns=slice(32, 64)),
}


@pytest.mark.parametrize("name", PARTS)
def test_pieces_together_are_the_part_that_is_taken(
    coded_model: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "NUMBERS_AT_ONCE", SMALL)
    told: list[tuple[int, int]] = []
    checkpoint = Checkpoint(METHOD.open(open_weights(coded_model, None), {}, ""), lambda *counts: told.append(counts))
    embedding, part = "model.embed_tokens.weight", PARTS[name]
    pieces = list(checkpoint.pieces({embedding: part}))
    assert len(pieces) > 1
    assert [done for done, _ in told] == [checkpoint.find(embedding).num_bytes]
    assert all(len(piece.integers) == 64 for piece in pieces[:-1] if isinstance(piece, QuantisedWeight))
    assert torch.equal(torch.cat([dense(piece) for piece in pieces]), dense(checkpoint.take(embedding, part)))


def test_a_dense_weight_is_made_of_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a stack of matrices; the float32 numbers that lie in between are few."""
    weight = coded(FORMS["4 bits, steps"], 60, 256, torch.bfloat16)
    stack = weight.mapped(lambda tensor: tensor.view(6, 10, -1))
    expected = weight.wide().bfloat16()
    sizes: list[int] = []
    wide = QuantisedWeight.wide

    def recorded(self: QuantisedWeight) -> Tensor:
        sizes.append(self.integers.numel())
        return wide(self)

    monkeypatch.setattr(quantised, "DENSE_AT_ONCE", SMALL)
    monkeypatch.setattr(QuantisedWeight, "wide", recorded)
    assert torch.equal(weight.dense(), expected)
    assert torch.equal(stack.dense(), expected.view(6, 10, 256))
    assert max(sizes) == SMALL
