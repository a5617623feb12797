"""Targets whose layers training does not compute are refused by name, before text and weights are read."""

from __future__ import annotations

import msgspec
import pytest
from training_cases import KINDS, options, write_target

from specserve.errors import ModelError
from specserve.models.read_config import read_config
from specserve_eagle.training.options import check_against
from specserve_eagle.training.run import train
from specserve_eagle.training.target import Target

FULL, SLIDING = "full_attention", "sliding_attention"
GEMMA4 = {"architecture": "gemma4_text", "layer_types": [SLIDING, FULL] * 4}


@pytest.fixture(scope="module")
def gemma4(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("gemma4"), **GEMMA4)


@pytest.mark.parametrize("kind", KINDS)
def test_no_head_is_trained_on_layers_that_differ(tmp_path, gemma4, kind):
    """The text does not exist: it is not read."""
    with pytest.raises(ModelError, match="layers that are alike, and family gemma4_text has layers with heads of"):
        train(options(kind, gemma4, tmp_path / "out", data=(str(tmp_path / "none.txt"),)))
    assert not (tmp_path / "out").exists()


def test_no_head_is_measured_on_layers_that_differ(gemma4):
    with pytest.raises(ModelError, match="layers that are alike"):
        Target.load(gemma4, "cpu")


EARLY = {
    "gemma2": ({"architecture": "gemma2", "layer_types": None}, "cap scores or have sinks"),
    "lfm2": ({"architecture": "lfm2"}, "family lfm2 has others"),
}


@pytest.mark.parametrize(("model", "message"), EARLY.values(), ids=EARLY)
def test_a_target_is_judged_by_its_config(tmp_path, model, message):
    path = write_target(tmp_path, **model)
    with pytest.raises(ModelError, match=message):
        check_against(options("eagle", path, tmp_path), read_config(path))


@pytest.mark.parametrize(("field", "name"), [("value_norm", "norms of values"), ("layer_scales", "scales of layers")])
def test_parts_of_layers_that_are_not_trained_on_are_named(tmp_path, field, name):
    config = msgspec.structs.replace(read_config(write_target(tmp_path)), **{field: True})
    with pytest.raises(ModelError, match=f"without {name}, which family llama has"):
        check_against(options("eagle", tmp_path, tmp_path), config)
