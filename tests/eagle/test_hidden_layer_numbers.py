"""Layer numbers of EAGLE-3 checkpoints: two numberings are in use, and files mix them up."""

from __future__ import annotations

import pytest

from specserve.errors import ModelError
from specserve_eagle.checkpoints.hidden_layers import hidden_layers

L = 32
DEFAULT = (2, 16, 29)
KEY = "eagle_aux_hidden_state_layer_ids"


def top(*ids):
    return {KEY: list(ids)}


def nested(*ids):
    return {"eagle_config": top(*ids)}


def test_without_ids_the_default_layers_are_read():
    for raw in (
        {},
        {"eagle_config": None},
        {"eagle_config": {}},
        {KEY: None},
        nested() | {"eagle_config": {KEY: None}},
    ):
        assert hidden_layers(raw, L, "config.json") == DEFAULT


def test_ids_at_the_top_are_ours():
    assert hidden_layers(top(3, 10, 20), L, "config.json") == (3, 10, 20)


def test_ids_within_eagle_config_count_the_layers():
    assert hidden_layers(nested(3, 10, 20), L, "config.json") == (4, 11, 21)


@pytest.mark.parametrize("place", [top, nested])
@pytest.mark.parametrize("ids", [(1, 15, 28), (2, 16, 29)])
def test_the_default_layers_are_known_in_both_numberings(place, ids):
    assert hidden_layers(place(*ids), L, "config.json") == DEFAULT


def test_the_last_layers_output_exists_in_our_numbering_only():
    assert hidden_layers(nested(24, 30, 32), L, "config.json") == (24, 30, 32)


def test_ids_at_the_top_have_priority():
    assert hidden_layers(top(3, 10, 20) | nested(4, 5, 6), L, "config.json") == (3, 10, 20)


def test_other_numbers_of_layers_are_read():
    assert hidden_layers(top(1, 8, 16, 24, 32), L, "config.json") == (1, 8, 16, 24, 32)


@pytest.mark.parametrize("raw", [top(2, 16, 33), nested(2, 16, 33), top(-1, 2, 3)])
def test_a_layer_beyond_the_target_means_another_target(raw):
    with pytest.raises(ModelError, match=r"this target has 32 layers, so 0 to 32 are allowed.*another target"):
        hidden_layers(raw, L, "config.json")


def test_a_target_too_shallow_for_the_default_layers_is_refused():
    with pytest.raises(ModelError, match="another target"):
        hidden_layers({}, 2, "config.json")


@pytest.mark.parametrize("ids", ["2", [2.5, 3, 4], [True, 3, 4], 5])
def test_what_is_no_list_of_numbers_is_refused(ids):
    with pytest.raises(ModelError, match="must be a list of layer numbers"):
        hidden_layers({KEY: ids}, L, "config.json")
