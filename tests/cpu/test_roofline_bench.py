"""The bench that compares steps with what cores can multiply: what it counts."""

from __future__ import annotations

import shutil

import pytest
from benchmarks.cases.roofline import attention_products, linear_products
from benchmarks.lib.multiply_peak import INSTRUCTIONS, multiply_peak
from safetensors import safe_open

from specserve.models.locate import locate_model
from specserve.models.read_config import read_config
from specserve_cpu._native import instruction_sets


def test_products_of_layers_are_the_numbers_of_their_matrices():
    path = locate_model("demo")
    with safe_open(path / "model.safetensors", "pt") as file:
        shapes = [file.get_slice(name).get_shape() for name in file.keys() if ".layers." in name]  # noqa: SIM118
    assert linear_products(read_config(path)) == sum(shape[0] * shape[1] for shape in shapes if len(shape) == 2)


def test_a_token_is_multiplied_with_keys_and_with_values():
    config = read_config(locate_model("demo"))
    assert attention_products(config, 10) == 2 * 10 * config.num_heads * config.head_dim * config.num_layers


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++"))), reason="it compiles a program")
def test_a_peak_is_that_of_a_core():
    name = next((each for each in instruction_sets() if each in INSTRUCTIONS), None)
    if name is None:
        pytest.skip("no peak is measured for this processor")
    assert 1e9 < multiply_peak(name, 1) < 1e12
