"""Every compatibility that lora declares, with adapters in the batch: beside a plugin of that feature, with and without
guesses."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest
from test_declared_pairs import PARTNERS

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.types import SpeculationParams
from specserve_workbench.testing.engines import run_requests, verify_everything
from specserve_workbench.testing.requests import toy_request, varied_requests
from toy_adapters import lora_engine, under

PROJECT = tomllib.loads((Path(__file__).parents[2] / "plugins" / "lora" / "pyproject.toml").read_text())["project"]
DECLARED = PROJECT["entry-points"]["specserve.compatible.lora"]
ELSEWHERE = {"attention.hybrid"}
"""Run with the plugin itself, in test_lora_lossless.py."""


def requests_and_names(adapters):
    # a bias towards one token makes text that repeats, so that there is something to guess
    repetitive = [toy_request(f"r{i}", (5, 6, 6), max_tokens=30, logit_bias={6: 20.0 + i}, seed=i) for i in range(9)]
    requests = [*varied_requests(18), *repetitive]
    names = [None, *adapters]
    return requests, [names[i % len(names)] for i in range(len(requests))]


def undrafted(requests):
    off = SpeculationParams(enabled=False)
    return [msgspec.structs.replace(request, speculation=off) for request in requests]


@pytest.fixture(scope="module")
def alone(toy_model, adapters):
    """The requests without a partner."""
    requests, names = requests_and_names(adapters)
    plain, store = lora_engine(toy_model, adapters)
    return run_requests(plain, under(store, requests, names))


@pytest.mark.parametrize("feature", sorted(DECLARED.keys() - ELSEWHERE))
def test_adapters_beside_a_declared_feature_are_lossless(toy_model, adapters, alone, feature):
    requests, names = requests_and_names(adapters)
    partner = PARTNERS[feature](alone.tokens())
    extra = {"partner": InProcessPlugin(partner, PluginDeclaration(name="partner", provides={feature: "a partner"}))}
    drafts = hasattr(partner, "make_drafter")
    engine, store = lora_engine(toy_model, adapters, extra=extra, beside=() if drafts else ("ngram",))
    if feature != "planner.adaptive":
        verify_everything(engine)
    requests = under(store, requests, names)
    without = run_requests(engine, undrafted(requests)).decided()
    assert engine.metrics.num_accepted_tokens == 0
    assert run_requests(engine, requests).decided() == without
    assert engine.metrics.num_accepted_tokens > 50
    assert not engine.metrics.drafter_faults
    assert (without == alone.decided()) == (feature != "logits.processor")
