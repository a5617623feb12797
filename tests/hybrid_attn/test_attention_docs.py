"""docs/attention.md: its backend in 60 lines is run, its tables are held against the code."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from hybrids import hybrid_engine, undrafted

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.protocols import AttentionCapabilities
from specserve_hybrid_attn.options import HybridOptions
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

DOCS = (Path(__file__).parents[2] / "docs" / "attention.md").read_text()
EXAMPLE = re.search(r"^```python\n(.*?)^```$", DOCS, flags=re.MULTILINE | re.DOTALL)[1]


@pytest.fixture(scope="module")
def example():
    module = ModuleType("plain_attention")
    exec(compile(EXAMPLE, "docs/attention.md", "exec"), vars(module))
    declaration = PluginDeclaration(name="plain", provides={"attention.backend": "the example of docs/attention.md"})
    return {"plain": InProcessPlugin(module, declaration)}


def test_the_example_has_at_most_60_lines():
    assert len(EXAMPLE.splitlines()) <= 60


@pytest.mark.parametrize("options", [{}, {"block_size": 1}, {"kv_memory": "440K"}, {"dtype": "bfloat16"}], ids=str)
def test_the_example_serves_alone_and_is_lossless(toy_model, example, options):
    requests = varied_requests(24)
    plain = make_engine(toy_model, extra=example, attention="plain", **options).engine
    expected = run_requests(plain, requests)
    drafter = NoisyDrafter(expected.tokens(), p=0.7, max_width=8, vocab_size=TOY_VOCAB, seed=0)
    drafted = make_engine(toy_model, drafter, extra=example, attention="plain", allow_undeclared=True, **options)
    assert run_requests(drafted.engine, requests).decided() == expected.decided()
    assert drafted.engine.metrics.num_accepted_tokens > 50
    assert drafted.description["attention"] == "plain (plain)"


@pytest.mark.parametrize("architecture", ["llama", "mistral"])
def test_the_example_chooses_the_tokens_that_sdpa_chooses(tmp_path, example, architecture):
    extra = {"sliding_window": 16} if architecture == "mistral" else {}
    model = write_checkpoint(tmp_path / "model", architecture=architecture, **extra)
    requests = varied_requests(12, seed=5)
    ours = run_requests(make_engine(model, extra=example, attention="plain").engine, requests)
    assert ours.tokens() == run(model, requests).tokens()


@pytest.mark.parametrize("settings", [
    {"prefill": "plain", "decode": "cpu_paged", "verify": "cpu_paged"},
    {"prefill": "cpu_paged", "decode": "plain", "verify": "decode"},
], ids=lambda s: ",".join(s.values()))  # fmt: skip
def test_the_example_serves_a_phase_beside_others(toy_model, example, settings):
    requests = varied_requests(24)
    expected = run_requests(hybrid_engine(toy_model, settings=settings, extra=example).engine, requests)
    drafter = NoisyDrafter(expected.tokens(), p=0.7, max_width=8, vocab_size=TOY_VOCAB, seed=0)
    engine = hybrid_engine(toy_model, drafter, settings=settings, extra=example, allow_undeclared=True).engine
    assert run_requests(engine, requests).decided() == expected.decided()
    assert run_requests(engine, undrafted(requests)).decided() == expected.decided()
    assert engine.metrics.num_accepted_tokens > 50


def test_every_capability_and_option_has_its_row():
    named = set(re.findall(r"`(\w+)`", DOCS))
    assert set(AttentionCapabilities.__struct_fields__) <= named
    for field in msgspec.structs.fields(HybridOptions):
        assert f"| `{field.name}` | `{field.default}` |" in DOCS
