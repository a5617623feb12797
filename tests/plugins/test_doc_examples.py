"""docs/plugins/examples.md and contract.md: every example is run, well typed, and does what the page says."""

from __future__ import annotations

import importlib
import json
import re
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
import torch
from aiohttp.test_utils import TestClient, TestServer
from doc_examples import PAGES, features_of, files_of
from safetensors.torch import save_file
from type_checks import check_types

from specserve.config import EngineConfig
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.engine.async_engine import AsyncEngine
from specserve.errors import RequestError
from specserve.plugins.hook_checks import HOOK_ARGUMENTS
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import DEFAULTS, drafter_plugin, make_engine, plain_run, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests
from specserve_workbench.testing.toy_tokenizer import write_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = files_of("examples.md")
FEATURES = features_of("examples.md")
ELSEWHERE = {"make_drafter", "attention_backends", "model_families", "weight_formats"}
CONTRACT = (PAGES / "contract.md").read_text()


@pytest.fixture
def example(tmp_path, monkeypatch):
    """`example("forbid")`: the plugins of make_engine, with this one among them."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(name: str, entry: str = "") -> dict[str, InProcessPlugin]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "plugin.py").write_text(EXAMPLES[f"{name}/plugin.py"])
        importlib.invalidate_caches()
        module = importlib.import_module(f"{name}.plugin")
        monkeypatch.delitem(sys.modules, f"{name}.plugin")
        monkeypatch.setitem(sys.modules, f"{name}.plugin", module)
        plugin = getattr(module, entry)() if entry else module
        works = {"draft.chain": "a test's drafter", "draft.tree": "a test's drafter"}
        provides = {FEATURES[f"{name}/plugin.py"]: "an example"}
        return {
            name: InProcessPlugin(
                plugin, PluginDeclaration(name=name, dist="my-dist", provides=provides, compatible=works)
            )
        }

    return load


def growing(count, **params):
    return [toy_request(str(i), range(1, 9 + i), max_tokens=24, ignore_eos=True, **params) for i in range(count)]


def run_drafted(model, extra, expected, requests, **options):
    """With drafts that are often wrong, all of them verified unless a planner is among the plugins."""
    noisy = NoisyDrafter(expected, p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    drafter = {"drafter": drafter_plugin(lambda: noisy)}
    return run_requests(make_engine(model, extra={**extra, **drafter}, **options).engine, requests)


def test_every_hook_has_an_example():
    implemented = {hook for code in EXAMPLES.values() for hook in re.findall(r"@hookimpl\n\s*def (\w+)", code)}
    assert implemented | ELSEWHERE == {*HOOK_ARGUMENTS}
    headings = re.findall(r"^## (.*)$", (PAGES / "examples.md").read_text(), re.MULTILINE)
    assert {hook for heading in headings for hook in re.findall(r"`(\w+)`", heading)} | ELSEWHERE == {*HOOK_ARGUMENTS}


def test_they_are_well_typed(tmp_path):
    for path, code in EXAMPLES.items():
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(code)
        (tmp_path / path).with_name("__init__.py").touch()
    check_types(EXAMPLES, tmp_path)


@pytest.mark.parametrize("default_plugins", [False, True], ids=["torch", "native"])
def test_forbid(toy_model, example, default_plugins):
    requests, extra = growing(4, temperature=1.0, seed=3), example("forbid")
    given = {"default_plugins": default_plugins}
    plain = plain_run(toy_model, requests, **given).tokens()
    banned = sorted({token for tokens in plain.values() for token in tokens})[:20]
    given["plugin_options"] = {"forbid": {"tokens": banned}}
    expected = run_requests(make_engine(toy_model, extra=extra, **given).engine, requests).tokens()
    assert not {token for tokens in expected.values() for token in tokens} & {*banned}
    assert run_drafted(toy_model, extra, expected, requests, **given).tokens() == expected


def test_entropy(toy_model, example):
    engine = make_engine(toy_model, extra=example("entropy")).engine
    run_requests(engine, growing(2))
    (metric,) = engine.observer_metrics()
    assert metric.name == "entropy_nats"
    assert 1.0 < metric.value < 6.0  # of 320 tokens at most log(320) = 5.8


def test_cache_shares(toy_model, example):
    engine = make_engine(toy_model, extra=example("cache_shares", "CacheShares"), block_size=4).engine
    for i, adapter in enumerate(("", "sql@1")):  # unchecked: without a plugin for adapters, of the base model
        engine.add(msgspec.structs.replace(toy_request(str(i), range(9), max_tokens=1), adapter=adapter))
        engine.step()
    counts = {dict(metric.labels)["adapter"]: metric.value for metric in engine.observer_metrics()}
    assert counts == {"": 2, "sql@1": 2}
    engine.reset_prefix_cache()
    assert engine.observer_metrics() == []


def test_half(toy_model, example):
    requests = growing(3)
    expected = plain_run(toy_model, requests).tokens()
    outcome = run_drafted(toy_model, example("half"), expected, requests)
    assert outcome.tokens() == expected
    widest = max(len(step.tokens) for output in outcome.outputs.values() for step in output.steps)
    assert 2 <= widest <= 4  # of six draft tokens three, and one token of the target


def test_lenient(toy_model, example):
    requests, extra = [*growing(3), *varied_requests(12, seed=4)[3:]], example("lenient")
    plain = plain_run(toy_model, requests).tokens()
    engine = make_engine(toy_model, extra=extra).engine
    greedy = run_requests(engine, requests).tokens()
    assert all(greedy[str(i)] == plain[str(i)] for i in range(3))
    outcome = run_drafted(toy_model, extra, greedy, requests)
    assert outcome.metrics.num_accepted_tokens
    assert not outcome.metrics.faults.counts


def test_scaled(toy_model, example):
    requests, extra = growing(3), example("scaled")
    expected = run_requests(make_engine(toy_model, extra=extra).engine, requests).tokens()
    assert expected != run(toy_model, requests).tokens()
    assert run_drafted(toy_model, extra, expected, requests).tokens() == expected


def test_steered(toy_model, example):
    requests = growing(4)
    mixed = [msgspec.structs.replace(r, adapter="steered@1" if i % 2 else "") for i, r in enumerate(requests)]
    extra = example("steered", "Steered")
    plain, engine = plain_run(toy_model, requests).tokens(), make_engine(toy_model, extra=extra).engine
    outcome = run_requests(engine, mixed).tokens()
    assert [outcome[str(i)] == plain[str(i)] for i in range(4)] == [True, False, True, False]
    assert run_drafted(toy_model, extra, outcome, mixed).tokens() == outcome


def test_precise(toy_model, example):
    made = make_engine(toy_model, extra=example("precise"))
    assert made.engine.runner.model.kernels.name == "precise"
    requests = growing(3)
    assert run_requests(made.engine, requests).tokens() == plain_run(toy_model, requests).tokens()


def test_first(toy_model, example):
    made = make_engine(toy_model, extra=example("first"), default_plugins=True)
    assert made.description["attention"].startswith("cpu_paged")
    assert make_engine(toy_model).description["attention"].startswith("sdpa")


def test_short(toy_model, example):
    engine = make_engine(toy_model, extra=example("short", "Short"), plugin_options={"short": {"max_prompt": 5}}).engine
    engine.check(toy_request("a", range(5)))
    with pytest.raises(RequestError, match="the prompt has 6 tokens; at most 5 are allowed here"):
        engine.check(toy_request("a", range(6)))


def test_few(toy_model, example):
    engine = make_engine(toy_model, extra=example("few"), graphs="piecewise").engine
    longer = toy_request("longer", range(1, 9), max_tokens=60, ignore_eos=True)
    run_requests(engine, [*growing(5), longer])
    assert {use.mode for use in engine.metrics.graph_steps} == {"piecewise", "none"}
    assert any("6 requests are too many" in use.reason for use in engine.metrics.graph_steps)


def test_rows(toy_model, example):
    requests = growing(3)
    engine = make_engine(toy_model, extra=example("rows")).engine
    assert run_requests(engine, requests).tokens() == plain_run(toy_model, requests).tokens()
    assert engine.runner.num_rows == sum(len(each.prompt_token_ids) + each.params.max_tokens - 1 for each in requests)


async def test_running(toy_model, example):
    config = EngineConfig(model=str(toy_model), plugins=("running",), **DEFAULTS)
    engine = await AsyncEngine.start(config, extra=example("running"))
    async with TestClient(TestServer(make_app(engine, ServerConfig()))) as client:
        answer = await client.get("/v1/running")
        assert json.loads(await answer.text()) == {"running": 0}


def test_the_rows_of_the_contract_are_those_of_an_engine(tmp_path: Path, toy_model: Path, capsys) -> None:
    files = files_of("contract.md")
    printed = re.search(r"^```text\n(.*?)^```$", CONTRACT, re.MULTILINE | re.DOTALL)
    scope: dict[str, object] = {}
    exec(compile(files["rows.py"], "rows.py", "exec"), scope)
    scope["show"](toy_model)
    assert capsys.readouterr().out == printed[1]


@pytest.mark.parametrize("kernels", ["torch", "cpu"])
def test_a_library_computes_its_model_with_drafts_as_without(example, tmp_path, kernels):
    path, numbers = tmp_path / "model", torch.randn((TOY_VOCAB, 32), generator=torch.Generator().manual_seed(0))
    path.mkdir()
    write_tokenizer(path)
    (path / "config.json").write_text(json.dumps({"architectures": ["AveragesForCausalLM"], "model_type": "averages"}))
    save_file({"embedding": numbers}, path / "model.safetensors")
    options = {"plugins": ("cpu",) if kernels == "cpu" else (), "extra": example("averages")}
    requests = growing(4)
    plain = run(path, requests, max_num_seqs=1, **options)
    for request in requests:
        tokens, (first, *_) = list(request.prompt_token_ids), plain.tokens()[request.request_id]
        assert first == int((numbers @ numbers[tokens].mean(0)).argmax())
    noisy = NoisyDrafter(plain.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    options["extra"] |= {"drafter": drafter_plugin(lambda: noisy)}
    drafted = run(path, requests, max_num_batched_tokens=24, **options)
    assert drafted.decided() == plain.decided()
    assert drafted.metrics.num_accepted_tokens > 10
