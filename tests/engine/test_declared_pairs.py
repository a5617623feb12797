"""Every compatibility that a plugin of this repository declares is run here; a declaration without a row fails."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import pytest

from draft_adapters import write_draft_adapter
from planning_cases import FixedCosts
from specserve.attention.sdpa import SdpaFactory
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve.protocols import CacheObserver, LogitsProcessor, ProcessorState
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_hybrid_attn.factory import HybridFactory
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests, verify_everything
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests

REPOSITORY = Path(__file__).parents[2]


class ChainsOnly(NoisyDrafter):
    def tree(self, future, width):
        return self.chain(future, width)


class Moody(FixedWidthPlanner):
    """Wants another number of guesses of every request in every step."""

    step = 0

    def limits(self, requests):
        self.step += 1
        return [(7 * self.step + i) % 16 if most else 0 for i, most in enumerate(super().limits(requests))]


class Shy(LogitsProcessor, ProcessorState):
    """A logits processor, and its state: no token three times in a row."""

    def __init__(self, request=None):
        self.tokens = [] if request is None else list(request.tokens)

    def start(self, request, vocab_size):
        return Shy(request)

    def apply(self, logits, path):
        newest = [*self.tokens[-2:], *path][-2:]
        if len(newest) == 2 and newest[0] == newest[1]:
            logits[newest[0]] = float("-inf")
        return logits

    def commit(self, tokens):
        self.tokens += tokens


class Witness:
    """An observer that remembers what was committed."""

    def __init__(self):
        self.seen = {}

    def observe(self, batch, verdict):
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            self.seen.setdefault(span.request.id, []).extend(decided.tokens)

    def metrics(self):
        return ()


class CacheWitness(CacheObserver):
    """A cache observer that looks away."""

    def changed(self, changes):
        assert changes


class Partner:
    """A plugin of the hooks that it is given, by name; everything that is drafted is verified."""

    def __init__(self, **answers):
        for hook, answer in ({"make_draft_planner": FixedWidthPlanner(16)} | answers).items():
            setattr(self, hook, hookimpl(lambda answer=answer: answer))


def drafting(kind):
    return lambda outputs: Partner(make_drafter=kind(outputs, p=0.6, max_width=8, vocab_size=TOY_VOCAB))


class CopiedSdpa(SdpaFactory):
    """Somebody else's backend, under a name of its own."""

    name = "copied_sdpa"


class OneAdapter(Partner):
    """An adapter for every row of the target."""

    @hookimpl
    def adapt_model(self, model):
        for projection in model.projections.values():
            projection.add_delta(lambda x, out, rows, lora: out.add_(0.05 * x[:, :1]))


PARTNERS = {
    "attention.backend": lambda outputs: Partner(
        attention_backends=[CopiedSdpa()], make_drafter=NoisyDrafter(outputs, p=0.6, max_width=8, vocab_size=TOY_VOCAB)
    ),
    "attention.hybrid": lambda outputs: Partner(
        select_attention=HybridFactory(SdpaFactory(), CopiedSdpa(), "verify"),
        make_drafter=NoisyDrafter(outputs, p=0.6, max_width=8, vocab_size=TOY_VOCAB),
    ),
    "draft.chain": drafting(ChainsOnly),
    "draft.model": drafting(NoisyDrafter),
    "draft.tree": drafting(NoisyDrafter),
    "lora.target": lambda outputs: OneAdapter(),
    "planner.adaptive": lambda outputs: Partner(make_draft_planner=Moody(16)),
    "logits.processor": lambda outputs: Partner(logits_processors=[Shy()]),
    "observer.cache": lambda outputs: Partner(make_cache_observer=CacheWitness()),
    "observer.metrics": lambda outputs: Partner(make_observer=Witness()),
    "server.routes": lambda outputs: Partner(add_routes=None),
}
"""For a feature, something that provides it and that the plugin under test runs beside."""


DRAFTING = ("eagle", "ngram", "repeat", "uno")
RANKS = "tensor_parallel"
"""Adds in another order than one process does: the same tokens in float32, and log-probabilities that are nearly so."""
OF_INSTALLED = {
    "draft.model": "tensor_parallel/test_ranks_lossless.py",
    "lora.target": "tensor_parallel/test_rank_adapters.py",
    "attention.hybrid": "tensor_parallel/test_ranks_lossless.py",
    "attention.backend": "tensor_parallel/test_same_tokens.py",
}
"""What ranks load themselves, so that no partner within a test can be it: the tests with installed plugins."""
OF_NGRAM = ("draft.chain", "draft.tree", "observer.metrics", "server.routes")


def needed_options(plugin, toy_model):
    """Of plugins that need any: eagle drafts with the toy model itself, as a stand-alone draft model."""
    if plugin == "uno":
        return {plugin: {"adapter": str(write_draft_adapter(toy_model.parent / "draft adapter", toy_model))}}
    needed = {
        "eagle": {"model": str(toy_model), "steps": 4},
        "kv_events": {"endpoint": "tcp://127.0.0.1:*"},  # an earlier engine may not be forgotten yet
    }
    return {plugin: needed[plugin]} if plugin in needed else {}


def declared_pairs():
    """(plugin, feature) of every `compatible` entry point in the repository's packages, but those `OF_INSTALLED`."""
    for file in sorted([*REPOSITORY.glob("plugins/*/pyproject.toml"), REPOSITORY / "template/pyproject.toml"]):
        groups = tomllib.loads(file.read_text())["project"]["entry-points"]
        for group, entries in groups.items():
            if group.startswith("specserve.compatible."):
                plugin = group.removeprefix("specserve.compatible.")
                yield from ((plugin, each) for each in entries if (plugin, each in OF_INSTALLED) != (RANKS, True))


def partner_plugin(feature, partner, plugins):
    """The partner of these plugins, as a plugin."""
    compatible = ()
    if {"adaptive", "kv_events", RANKS} & {*plugins}:  # which run beside n-gram drafts
        compatible = OF_NGRAM
    if "adaptive" in plugins:  # which plans itself
        del partner.make_draft_planner
    declaration = PluginDeclaration(
        name="partner",
        provides={feature: "a test's partner"},
        compatible=dict.fromkeys(compatible, "a test's partner"),
    )
    return {"partner": InProcessPlugin(partner, declaration)}


def run_with(toy_model, feature, partner, requests, *plugins):
    extra = partner_plugin(feature, partner, plugins)
    tables = {name: table for plugin in plugins for name, table in needed_options(plugin, toy_model).items()}
    engine = make_engine(toy_model, plugins=plugins, extra=extra, plugin_options=tables).engine
    if "adaptive" in plugins:  # on a made-up machine, so that its decisions do not depend on this one
        engine.planner.planner.costs = engine.planner.planner.regimes.costs = FixedCosts([1, 64], [1.0, 1.5])
    return run_requests(engine, requests)


# a bias towards one token makes text that repeats, so that the template's drafter has something to guess
REPETITIVE = [toy_request(f"r{i}", (5, 6, 6), max_tokens=30, logit_bias={6: 20.0 + i}, seed=i) for i in range(4)]
REQUESTS = (*varied_requests(18), *REPETITIVE)


@cache
def run_without(toy_model, feature):
    """With the partner alone, which is the same whatever plugin runs beside it."""
    outputs = plain_run(toy_model, REQUESTS).tokens()
    return run_with(toy_model, feature, PARTNERS[feature](outputs), REQUESTS)


@pytest.mark.parametrize(("plugin", "feature"), list(declared_pairs()))
def test_a_declared_pair_is_lossless(toy_model, plugin, feature):
    assert feature in PARTNERS, f"{plugin} declares {feature}: add a partner that provides it, and with it the proof"
    requests, outputs = REQUESTS, plain_run(toy_model, REQUESTS).tokens()
    drafts = plugin in DRAFTING or hasattr(PARTNERS[feature](outputs), "make_drafter")
    without = run_without(toy_model, feature)
    both = run_with(toy_model, feature, PARTNERS[feature](outputs), requests, plugin, *([] if drafts else ["ngram"]))
    assert both.tokens() == without.tokens()
    assert plugin == RANKS or both.decided() == without.decided()
    assert (without.tokens() == outputs) == (feature not in ("logits.processor", "lora.target"))
    assert not both.metrics.drafter_faults
    assert both.metrics.num_accepted_tokens > 50


@pytest.mark.parametrize("file", OF_INSTALLED.values())
def test_what_ranks_load_themselves_has_tests_of_its_own(file):
    assert (REPOSITORY / "tests" / file).is_file()


def test_an_observer_beside_a_drafter_sees_every_token_once(toy_model):
    requests, partner = varied_requests(12), Partner(make_observer=Witness())
    seen = run_with(toy_model, "observer.metrics", partner, requests, "ngram")
    assert partner.make_observer().seen == seen.tokens()


def test_the_templates_drafter_alone_is_accepted_where_text_repeats(toy_model):
    requests = [toy_request("r", (5, 6, 6), max_tokens=31, logit_bias={6: 100.0}, ignore_eos=True)]
    plain = plain_run(toy_model, requests)
    assembled = make_engine(toy_model, plugins=("repeat",), plugin_options={"repeat": {"width": 4}})
    alone = run_requests(verify_everything(assembled.engine), requests)
    assert alone.decided() == plain.decided()
    assert alone.metrics.num_accepted_tokens == alone.metrics.num_draft_tokens == 24
