"""Every compatibility that a plugin of this repository declares, with graphs: replayed, or with a true reason."""

from __future__ import annotations

from graph_runs import KindsOfSteps, steps_of
from test_declared_pairs import DRAFTING, PARTNERS, RANKS, declared_pairs, needed_options, partner_plugin

from covering import covering_cells
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests, watch
from specserve_workbench.testing.requests import toy_request, varied_requests

REASONS = {
    "attention.backend": {"attention sdpa has no full graphs"},
    "attention.hybrid": {"attention sdpa has no full graphs"},
    "lora.target": {"projection layers.0.qkv_proj has a delta of an unknown kind, function"},
}
"""Where the partner of this feature leaves something to be said; others let every step be replayed in full mode."""
KERNELS = ("cpu",)
PAIRS = [(plugin, feature) for plugin, feature in declared_pairs() if plugin != RANKS]
"""Ranks refuse graphs."""


def pair_engine(model, plugin, feature, partner, graphs):
    extra = partner_plugin(feature, partner, (plugin,))
    drafts = plugin in DRAFTING or hasattr(partner, "make_drafter")
    names = (*KERNELS, plugin, *(() if drafts else ("ngram",)))
    options, attention = needed_options(plugin, model), "auto"
    if feature == "attention.backend" and plugin == "hybrid_attn":
        options["hybrid_attn"] = {"decode": "copied_sdpa", "verify": "copied_sdpa"}
    elif feature == "attention.backend":
        attention = "copied_sdpa"
    return make_engine(
        model, plugins=tuple(dict.fromkeys(names)), extra=extra, plugin_options=options, graphs=graphs,
        attention=attention,
    ).engine  # fmt: skip


@covering_cells(["plugin", "feature"], PAIRS)
def test_a_declared_pair_is_replayed_or_says_why_not(toy_model, plugin, feature):
    repetitive = [toy_request(f"r{i}", (5, 6, 6), max_tokens=20, logit_bias={6: 20.0 + i}, seed=i) for i in range(3)]
    requests = [*varied_requests(10), *repetitive]
    outputs = plain_run(toy_model, requests, plugins=KERNELS).tokens()
    runs, kinds = {}, KindsOfSteps()
    for graphs in ("none", "full"):
        engine = pair_engine(toy_model, plugin, feature, PARTNERS[feature](outputs), graphs)
        if graphs == "full":
            watch(engine, kinds)
        runs[graphs] = run_requests(engine, requests)
    assert runs["full"].decided() == runs["none"].decided()
    steps, expected = steps_of(runs["full"].metrics), REASONS.get(feature, set())
    assert steps.reasons == expected
    if not expected:
        assert (steps.full, steps.piecewise, steps.none) == (kinds.generated, kinds.others, 0)
    elif feature == "lora.target":
        assert steps.none == runs["full"].metrics.num_steps
    else:
        assert (steps.full, steps.none) == (0, 0)
