"""Losslessness with the real drafter: four kinds of draft models, chains and trees, beside other plugins."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest
from eagle_engines import KINDS, TREE_KINDS, eagle_engine, eagle_options, memory_for, write_draft, write_target
from kv_history import Fickle

import drafted_requests
from covering import covering
from specserve_workbench.testing.engines import accepted, make_engine, plain_run, run_requests
from toy_adapters import lora_of, lora_options, under, write_adapters

VOCAB = 64
CHAINS, TREES = {"steps": 3}, {"steps": 3, "topk": 3}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def drafts(target, tmp_path_factory):
    """Directories by kind."""
    path = tmp_path_factory.mktemp("drafts")
    return {kind: write_draft(path / kind, kind, target) for kind in KINDS}


mixed_requests = partial(drafted_requests.mixed_requests, vocab_size=VOCAB)


def requests_in(batch_size):
    """One after the other they take many steps: fewer of them."""
    return mixed_requests(7 if batch_size == 1 else 20)


def assert_lossless(target, draft, requests, *, settings=CHAINS, planner=None, **options):
    plain = plain_run(target, requests, **options)
    engine = eagle_engine(target, draft, settings=settings, planner=planner, **options)
    speculative = run_requests(engine, requests)
    assert not speculative.metrics.drafter_faults
    assert speculative.decided() == plain.decided()
    good, drafted = accepted(speculative)
    assert 0 < good <= drafted
    return speculative


def assert_drafts_change_nothing(target, draft, settings, batch_size, dtype):
    assert_lossless(
        target, draft, requests_in(batch_size), settings=settings, max_num_seqs=batch_size, dtype=dtype,
        max_num_batched_tokens=256,
    )  # fmt: skip


@pytest.mark.usefixtures("each_kernel_set")
@covering(each_kernel_set=["torch", "cpu"], indirect=["each_kernel_set"], case=[
    ("standalone", CHAINS, 8, "float32"),
    ("standalone", TREES, 32, "bfloat16"),
    ("eagle3", CHAINS, 1, "bfloat16"),
    ("eagle3", TREES, 8, "float32"),
    ("eagle", CHAINS, 32, "float32"),
    ("mtp", TREES, 32, "bfloat16"),
    ("mtp", CHAINS, 8, "float16"),
    ("dspark", CHAINS, 8, "float32"),
    ("dspark", CHAINS, 32, "bfloat16"),
    ("peagle", CHAINS, 8, "bfloat16"),
    ("peagle", {"steps": 6}, 32, "float32"),
])  # fmt: skip
def test_drafts_change_nothing(target, drafts, case):
    kind, *options = case
    assert_drafts_change_nothing(target, drafts[kind], *options)


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize(("kind", "topk"), [("standalone", 1), ("eagle3", 1), ("mtp", 4), ("peagle", 1)])
def test_the_products_own_planner_and_depth_change_nothing(target, drafts, kind, topk):
    requests = mixed_requests(12, seed=2)
    engine = make_engine(target, **eagle_options(drafts[kind], topk=topk)).engine
    speculative = run_requests(engine, requests)
    assert not speculative.metrics.drafter_faults
    assert speculative.decided() == plain_run(target, requests).decided()


@pytest.mark.sweep
@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize(
    ("kind", "settings", "batch_size", "dtype"),
    [
        *product(KINDS, (CHAINS,), (1, 8, 32), ("float32", "bfloat16")),
        *product(TREE_KINDS, (TREES,), (1, 8, 32), ("float32", "bfloat16")),
    ],
)
def test_no_drafts_change_anything(target, drafts, kind, settings, batch_size, dtype):
    assert_drafts_change_nothing(target, drafts[kind], settings, batch_size, dtype)


TIGHT = [
    {"num_blocks": 26},
    {"max_num_batched_tokens": 24},
    {"block_size": 1, "num_blocks": 300},
    {"block_size": 64},
    {"prefix_cache": False},
    {"chunked_prefill": False},
]


def assert_lossless_when_tight(target, draft, options, *, settings=CHAINS, **others):
    options = dict(options)
    num_blocks = options.pop("num_blocks", None)
    requests = [request for request in mixed_requests(16, seed=1) if len(request.prompt_token_ids) < 300]
    if num_blocks is None:
        assert_lossless(target, draft, requests, settings=settings, **options, **others)
        return
    plain = plain_run(target, requests, **options, **others).decided()
    memory = memory_for(num_blocks, target, draft, settings=settings, **others, **options)
    engine = eagle_engine(target, draft, settings=settings, kv_memory=memory, **others, **options)
    assert run_requests(engine, requests).decided() == plain
    assert engine.metrics.num_preemptions > 0
    assert not engine.metrics.drafter_faults


@pytest.mark.parametrize("kind", ["eagle3", "dspark", "peagle"])
@pytest.mark.parametrize("options", TIGHT, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()))
def test_drafts_change_nothing_when_everything_else_is_tight(target, drafts, kind, options):
    assert_lossless_when_tight(target, drafts[kind], options, default_plugins=True)


@pytest.mark.parametrize("options", TIGHT[:3], ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()))
def test_trees_of_blocks_change_nothing_when_everything_else_is_tight(target, drafts, options):
    settings = {"steps": 16, "topk": 16}
    assert_lossless_when_tight(target, drafts["dspark"], options, settings=settings, default_plugins=True)


@pytest.mark.sweep
@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize(
    ("kind", "settings"),
    [*product(KINDS, (CHAINS,)), *product(TREE_KINDS, (TREES,))],
    ids=lambda c: c if isinstance(c, str) else f"topk={c.get('topk', 1)}",
)
@pytest.mark.parametrize("options", TIGHT, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()))
def test_no_drafts_change_anything_when_tight(target, drafts, kind, settings, options):
    assert_lossless_when_tight(target, drafts[kind], options, settings=settings)


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("kind", ["standalone", "eagle3", "dspark", "peagle"])
def test_limits_that_come_and_go_change_nothing(target, drafts, kind):
    requests = mixed_requests(12)
    plain = plain_run(target, requests)
    answers = {r.request_id: [*r.prompt_token_ids, *plain.tokens()[r.request_id]] for r in requests}
    engine = eagle_engine(target, drafts[kind], planner=Fickle(answers, 0))
    assert run_requests(engine, requests).decided() == plain.decided()
    good, drafted = engine.metrics.num_accepted_tokens, engine.metrics.num_draft_tokens
    assert 0.2 < good / drafted < 0.95


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("kind", ["standalone", "mtp", "dspark", "peagle"])
def test_those_that_stay_notice_nothing_of_those_that_are_aborted(target, drafts, kind):
    requests = mixed_requests(16)
    plain = plain_run(target, requests).tokens()
    engine, tokens = eagle_engine(target, drafts[kind]), {}
    for request in requests:
        engine.add(request)
    for step in range(10_000):
        for output in engine.step():
            tokens.setdefault(output.request_id, []).extend(output.tokens)
        if step < len(requests) // 2:
            engine.abort(f"{step * 2}")
        if not engine.has_work:
            break
    engine.check_integrity()
    assert not engine.metrics.drafter_faults
    assert all(got == plain[name][: len(got)] for name, got in tokens.items())
    assert engine.metrics.request_success["abort"] > 3
    assert sum(got == plain[name] for name, got in tokens.items()) > 8


# --- beside other plugins -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def adapters(target, tmp_path_factory):
    return write_adapters(tmp_path_factory.mktemp("adapters"), target, 3)


BESIDE = {
    "lora": ("lora",),
    "hybrid_attn": ("hybrid_attn",),
    "ngram": ("ngram",),
    "all": ("lora", "hybrid_attn", "ngram"),
}


def engine_beside(target, plugins, adapters, *, draft=None, settings=CHAINS, **options):
    """With eagle where there is a draft model. Without it hybrid_attn decodes with what verifies."""
    tables = lora_options(adapters, max_loaded=8) if "lora" in plugins else {}
    if "hybrid_attn" in plugins:
        tables["hybrid_attn"] = {"prefill": "cpu_paged", "decode": "cpu_paged" if draft else "sdpa"}
        tables["hybrid_attn"] |= {"verify": "sdpa"} if draft else {}
    if draft is None:
        others = [name for name in plugins if name != "ngram"]
        return make_engine(target, plugins=others, plugin_options=tables, **options).engine
    tables |= {"ngram": {"min_survival": 0.01}} if "ngram" in plugins else {}
    return eagle_engine(target, draft, beside=plugins, settings=settings, plugin_options=tables, **options)


def served(engine, requests, adapters, plugins):
    if "lora" in plugins:
        names = [None, *adapters]
        requests = under(lora_of(engine), requests, [names[i % len(names)] for i in range(len(requests))])
    return run_requests(engine, requests)


def assert_lossless_beside(target, draft, plugins, adapters, **options):
    requests = mixed_requests(16, seed=4)
    plain = served(engine_beside(target, plugins, adapters, **options), requests, adapters, plugins)
    engine = engine_beside(target, plugins, adapters, draft=draft, **options)
    first = served(engine, requests, adapters, plugins)
    again = served(engine, requests, adapters, plugins)  # ngram has seen all answers, the prefix cache all prompts
    assert first.decided() == again.decided() == plain.decided()
    assert not engine.metrics.drafter_faults
    assert engine.metrics.num_accepted_tokens > 40


@pytest.mark.parametrize(("kind", "beside", "native"), [
    ("eagle3", "lora", True), ("eagle3", "lora", False), ("eagle3", "hybrid_attn", True), ("eagle3", "ngram", True),
    ("eagle3", "ngram", False), ("eagle3", "all", True), ("dspark", "all", True), ("dspark", "lora", False),
    ("peagle", "all", True), ("peagle", "ngram", False),
])  # fmt: skip
def test_drafts_change_nothing_beside_other_plugins(target, drafts, adapters, kind, beside, native):
    assert_lossless_beside(target, drafts[kind], BESIDE[beside], adapters, default_plugins=native)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("kind", KINDS)
def test_no_drafts_change_anything_beside_other_plugins(target, drafts, adapters, beside, kind, dtype):
    for settings in (CHAINS, TREES) if kind in TREE_KINDS else (CHAINS,):
        assert_lossless_beside(
            target, drafts[kind], BESIDE[beside], adapters, settings=settings, dtype=dtype, default_plugins=True
        )
