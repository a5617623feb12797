"""Tokens and log-probabilities of transformers' own generation, by every kernel set."""

from __future__ import annotations

import pytest
from architectures import FIVE, SERVED, write_model
from runs import expected, greedy


def check(path, kernels):
    ours = greedy(path, kernels=kernels).outputs
    for name, (tokens, chances) in expected(path).items():
        assert ours[name].tokens == tokens
        found = [each.logprob for each in ours[name].logprobs]
        assert found == pytest.approx(chances, abs=2e-3)
        assert len(set(tokens)) > 3, "text that repeats one token would hide errors"


@pytest.mark.parametrize("kernels", ["cpu", "torch"])
@pytest.mark.parametrize("name", FIVE)
def test_five_kinds_of_models_give_the_text_of_transformers(tmp_path, name, kernels):
    check(write_model(tmp_path, name), kernels)


@pytest.mark.sweep
@pytest.mark.parametrize("kernels", ["cpu", "torch"])
@pytest.mark.parametrize("name", SERVED)
def test_thirty_architectures_give_the_text_of_transformers(tmp_path, name, kernels):
    check(write_model(tmp_path, name), kernels)
