"""Tokens and log-probabilities of transformers' own generation, by every kernel set."""

from __future__ import annotations

import pytest
from architectures import KINDS, SERVED, write_model
from runs import expected, greedy, options_of, prompts

from covering import covering
from specserve_workbench.testing.engines import make_engine, run


def check(path, kernels):
    ours = greedy(path, kernels=kernels).outputs
    for name, (tokens, chances) in expected(path).items():
        assert ours[name].tokens == tokens
        found = [each.logprob for each in ours[name].logprobs]
        assert found == pytest.approx(chances, abs=2e-3)
        assert len(set(tokens)) > 3, "text that repeats one token would hide errors"


@covering(name=KINDS, kernels=["cpu", "torch"])
def test_all_kinds_of_models_give_the_text_of_transformers(tmp_path, name, kernels):
    check(write_model(tmp_path, name), kernels)


@pytest.mark.sweep
@pytest.mark.parametrize("kernels", ["cpu", "torch"])
@pytest.mark.parametrize("name", SERVED)
def test_every_architecture_gives_the_text_of_transformers(tmp_path, name, kernels):
    check(write_model(tmp_path, name), kernels)


@pytest.mark.parametrize("kernels", ["cpu", "torch"])
@pytest.mark.parametrize(("name", "given"), [("Gemma2ForCausalLM", "soft_caps"), ("GptOssForCausalLM", "sinks")])
def test_caps_and_sinks_give_the_text_of_transformers_and_of_the_family(tmp_path, name, given, kernels):
    path = write_model(tmp_path, name)
    check(path, kernels)
    model, family = (make_engine(path, **options).engine.runner.model for options in (options_of(kernels), {}))
    assert all(each is not None for each in getattr(model, given))
    assert len(getattr(model, given)) == len(getattr(family, given)) == 2
    theirs = run(path, prompts(num_tokens=64), plugins=(("cpu",) if kernels == "cpu" else ()))
    assert greedy(path, kernels=kernels).tokens() == theirs.tokens()
