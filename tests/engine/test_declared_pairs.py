"""Every compatibility that a plugin of this repository declares is run here; a declaration without a row fails."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.speculation.planning import VerifyAll
from specserve.testing.drafters import DrafterPlugin, NoisyDrafter
from specserve.testing.engines import make_engine, run, run_requests
from specserve.testing.requests import TOY_VOCAB, toy_request, varied_requests

REPOSITORY = Path(__file__).parents[2]


class ChainsOnly(NoisyDrafter):
    def tree(self, future, width):
        return self.chain(future, width)


PARTNERS = {"draft.chain": ChainsOnly, "draft.tree": NoisyDrafter}
"""For a feature, something that provides it and that the plugin under test runs beside."""


def declared_pairs():
    """(plugin, feature) of every `compatible` entry point in the repository's packages."""
    for file in sorted([*REPOSITORY.glob("plugins/*/pyproject.toml"), REPOSITORY / "template/pyproject.toml"]):
        groups = tomllib.loads(file.read_text())["project"]["entry-points"]
        for group, entries in groups.items():
            if group.startswith("specserve.compatible."):
                yield from ((group.removeprefix("specserve.compatible."), feature) for feature in entries)


@pytest.mark.parametrize(("plugin", "feature"), list(declared_pairs()))
def test_a_declared_pair_is_lossless(toy_model, plugin, feature):
    assert feature in PARTNERS, f"{plugin} declares {feature}: add a partner that provides it, and with it the proof"
    # a bias towards one token makes text that repeats, so that the template's drafter has something to guess
    repetitive = [toy_request(f"r{i}", (5, 6, 6), max_tokens=30, logit_bias={6: 20.0 + i}, seed=i) for i in range(4)]
    requests = [*varied_requests(24), *repetitive]
    plain = run(toy_model, requests)
    partner = PARTNERS[feature](plain.tokens(), p=0.6, max_width=8, vocab_size=TOY_VOCAB)
    declaration = PluginDeclaration(name="partner", provides={feature: "a test's drafter"})
    extra = {"partner": InProcessPlugin(DrafterPlugin(lambda: partner, VerifyAll(16)), declaration)}
    both = run_requests(make_engine(toy_model, plugins=(plugin,), extra=extra).engine, requests)
    assert both.decided() == plain.decided()
    assert not both.metrics.drafter_faults
    assert both.metrics.num_accepted_tokens > 50


def test_the_templates_drafter_alone_is_accepted_where_text_repeats(toy_model):
    requests = [toy_request("r", (5, 6, 6), max_tokens=31, logit_bias={6: 100.0}, ignore_eos=True)]
    plain = run(toy_model, requests)
    assembled = make_engine(toy_model, plugins=("repeat",), plugin_options={"repeat": {"width": 4}})
    assembled.engine.scheduler.planner = VerifyAll(32)
    alone = run_requests(assembled.engine, requests)
    assert alone.decided() == plain.decided()
    assert alone.metrics.num_accepted_tokens == alone.metrics.num_draft_tokens == 24
