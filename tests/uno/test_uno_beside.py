"""uno beside other plugins: adapters of requests, other drafters, grammars, backends, planners."""

from __future__ import annotations

import pytest
from uno_engines import uno_engine

from drafted_requests import mixed_requests
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import structured_requests, varied_requests
from toy_adapters import lora_of, lora_options, under, write_adapters


@pytest.fixture(scope="module")
def adapters(uno_target, tmp_path_factory):
    return write_adapters(tmp_path_factory.mktemp("adapters"), uno_target, 3)


def served(engine, requests, adapters):
    names = [None, *adapters]
    if adapters:
        requests = under(lora_of(engine), requests, [names[i % len(names)] for i in range(len(requests))])
    return run_requests(engine, requests)


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("beside", [("lora",), ("lora", "ngram"), ("hybrid_attn",), ("adaptive",)], ids="+".join)
def test_drafts_change_nothing_beside_other_plugins(uno_target, draft_adapter, adapters, beside):
    requests, adapters = mixed_requests(16, seed=4), adapters if "lora" in beside else {}
    tables = lora_options(adapters) if adapters else {}
    if "hybrid_attn" in beside:
        tables["hybrid_attn"] = {"prefill": "sdpa", "decode": "sdpa"}
    others = [name for name in beside if name not in ("ngram", "adaptive")]
    plain = served(make_engine(uno_target, plugins=others, plugin_options=tables).engine, requests, adapters)
    if "hybrid_attn" in beside:
        tables["hybrid_attn"] |= {"verify": "sdpa"}
    tables |= {"ngram": {"min_survival": 0.01}} if "ngram" in beside else {}
    engine = uno_engine(uno_target, draft_adapter, beside=beside, plugin_options=tables)
    first, again = (served(engine, requests, adapters) for _ in range(2))
    assert first.decided() == again.decided() == plain.decided()
    assert not engine.metrics.drafter_faults
    assert engine.metrics.accepted_tokens_by_drafter["uno"] > 40


@pytest.mark.usefixtures("each_kernel_set")
def test_drafts_change_nothing_under_grammars(uno_target, draft_adapter):
    """Drafts follow the grammar along their own path: beyond the first token more are right than without it."""
    requests = [*structured_requests(("regex", "choice", "json_schema")), *varied_requests(4)]
    plain = run_requests(make_engine(uno_target, plugins=("grammar",)).engine, requests)
    engine = uno_engine(uno_target, draft_adapter, beside=("grammar",))
    assert run_requests(engine, requests).decided() == plain.decided()
    assert not engine.metrics.drafter_faults
    assert engine.metrics.accepted_tokens_by_drafter["uno"] > 30


def test_drafts_of_a_draft_model_and_of_uno_change_nothing(uno_target, draft_adapter):
    requests = mixed_requests(12, seed=6)
    tables = {"eagle": {"model": str(uno_target), "steps": 3}}
    engine = uno_engine(
        uno_target, draft_adapter, beside=("eagle", "ngram"), plugin_options=tables, default_plugins=True
    )
    plain = run_requests(make_engine(uno_target, default_plugins=True).engine, requests)
    assert run_requests(engine, requests).decided() == plain.decided()
    assert not engine.metrics.drafter_faults


def test_the_adapter_that_drafts_is_no_model_of_the_server(uno_target, draft_adapter, adapters):
    engine = uno_engine(uno_target, draft_adapter, beside=("lora",), plugin_options=lora_options(adapters))
    assert lora_of(engine).names().keys() == adapters.keys()
