"""Families with capped scores, scaled queries and windows by layer: drafts of every plugin change nothing."""

from __future__ import annotations

import pytest

from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import STRUCTURED, structured_requests, toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

FAMILIES = ("gemma2", "ministral", "ministral3")
HYBRID = {"prefill": "sdpa", "decode": "cpu_paged", "verify": "cpu_paged"}
BESIDE = {
    "ngram": {},
    "eagle": {"eagle": {"topk": 3, "steps": 3}},
    "ngram eagle adaptive": {"adaptive": {"cost_cache": "none"}},
    "ngram hybrid_attn": {"hybrid_attn": HYBRID},
    "ngram graphs": {},
    "ngram grammar": {},
    "eagle cpu-int8": {"cpu": {"weights": "int8", "kv": "int8"}},
}


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("model") / request.param, architecture=request.param)


def options_of(beside, model, *, drafts):
    """Without drafts: the same plugins but for those that draft or plan."""
    names = [name for name in beside.split() if name not in ("graphs", "cpu-int8")]
    tables = {name: dict(table) for name, table in BESIDE[beside].items()}
    if "eagle" in names:
        tables["eagle"] = {"model": str(model), **tables.get("eagle", {})}
    options = {"default_plugins": True, "graphs": "full" if "graphs" in beside else "none"}
    if drafts:
        return options | {"plugins": tuple(names), "plugin_options": tables}
    kept = [name for name in names if name in ("hybrid_attn", "grammar")]
    tables = {name: table for name, table in tables.items() if name in (*kept, "cpu")}
    if "hybrid_attn" in kept:  # decodes with what verifies
        tables["hybrid_attn"]["verify"] = "decode"
    return options | {"plugins": tuple(kept), "plugin_options": tables}


def requests_for(beside):
    repetitive = [toy_request(f"r{i}", (5, 6, 6), max_tokens=40, logit_bias={6: 20.0 + i}, seed=i) for i in range(3)]
    return [*varied_requests(10), *repetitive, *(structured_requests(STRUCTURED) if "grammar" in beside else ())]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("beside", BESIDE)
def test_drafts_of_plugins_change_nothing(model, beside, dtype):
    requests = requests_for(beside)
    plain = make_engine(model, dtype=dtype, **options_of(beside, model, drafts=False), max_num_seqs=1).engine
    room = "1200K" if "eagle" in beside else "700K"
    drafting = make_engine(
        model, dtype=dtype, **options_of(beside, model, drafts=True), max_num_batched_tokens=40, kv_memory=room
    ).engine
    expected, drafted = run_requests(plain, requests), run_requests(drafting, requests)
    assert drafted.decided() == expected.decided()
    assert not drafting.metrics.drafter_faults
    assert drafting.metrics.num_accepted_tokens > 4
