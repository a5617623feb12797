"""The choice of attention backends in an engine: what it says, what it refuses, and drafts cut to chains."""

from __future__ import annotations

import pytest
from hybrids import Offer, hybrid_engine

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.errors import ConfigError, PluginError
from specserve.hookspecs import hookimpl
from specserve.protocols import BY_SLOT, KVLayout
from specserve_server.cli import main
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests


class Brings:
    def __init__(self, *factories):
        self.factories = factories

    @hookimpl
    def attention_backends(self):
        return self.factories


def backends_plugin(*factories, name="guest"):
    declaration = PluginDeclaration(name=name, provides={"attention.backend": "a test's"})
    return {name: InProcessPlugin(Brings(*factories), declaration)}


def test_the_choice_is_shown(toy_model):
    chosen = hybrid_engine(toy_model, settings={"prefill": "sdpa", "decode": "cpu_paged"})
    assert chosen.description["attention"] == "hybrid(prefill=sdpa, decode=cpu_paged) (hybrid_attn)"
    assert hybrid_engine(toy_model).description["attention"] == "cpu_paged (hybrid_attn)"


def test_the_option_attention_and_the_plugin_exclude_each_other(toy_model):
    with pytest.raises(ConfigError, match="--attention sdpa: plugin hybrid_attn chooses"):
        hybrid_engine(toy_model, attention="sdpa")


def test_refusals_name_the_configuration(toy_model):
    with pytest.raises(ConfigError, match="prefill=cpu_paged: dtype float16"):
        hybrid_engine(toy_model, settings={"prefill": "cpu_paged"}, beside=("cpu",), dtype="float16")


def test_the_first_layout_that_fits_is_used(toy_model):
    """Both here hold keys by slot; another's layout is taken where all that serve have it."""
    seen = []

    class Sees(Offer):
        def build(self, spec, cache, device, dtype):
            seen.append(spec.kv_layout)
            return super().build(spec, cache, device, dtype)

    wide, odd, own = KVLayout("wide", slots=64), KVLayout("odd", numbers=7), KVLayout("own", slots=8, numbers=2)
    one = Sees("one", dtypes=("float32",), kv_layouts=(wide, odd, own, BY_SLOT))
    two = Sees("two", dtypes=("float32",), kv_layouts=(BY_SLOT, own))
    three = Sees("three", dtypes=("float32",))
    backends = backends_plugin(one, two, three)
    for prefill, decode in (("one", "two"), ("two", "one"), ("one", "three"), ("one", "one"), ("three", "three")):
        hybrid_engine(toy_model, settings={"prefill": prefill, "decode": decode}, extra=backends)
    assert seen == [own, own, BY_SLOT, BY_SLOT, BY_SLOT, BY_SLOT, own, BY_SLOT]


def test_backends_that_share_no_layout_are_refused_together(toy_model):
    mine, yours = (Offer(name, dtypes=("float32",), kv_layouts=(KVLayout(name),)) for name in ("mine", "yours"))
    with pytest.raises(ConfigError, match=r"hybrid\(prefill=mine, decode=yours\).*none of its KV layouts: \(none that"):
        hybrid_engine(toy_model, settings={"prefill": "mine", "decode": "yours"}, extra=backends_plugin(mine, yours))


@pytest.mark.parametrize("chosen", ["auto", "chains"])
def test_drafts_are_cut_to_chains_where_siblings_cannot_be_masked(toy_model, chosen):
    """SDPA would mask them; under the false claim no draft with branches may reach it."""
    requests = varied_requests(16)
    backend = backends_plugin(Offer("chains", tree_mask=False, dtypes=("float32",), block_sizes=(16,)))
    plain = make_engine(toy_model, extra=backend, attention=chosen).engine
    expected = run_requests(plain, requests)
    drafter = NoisyDrafter(expected.tokens(), p=0.7, max_width=8, vocab_size=TOY_VOCAB, seed=0)
    assembled = make_engine(toy_model, drafter, extra=backend, attention=chosen, allow_undeclared=True)
    widths = []
    plan = assembled.engine.runner.attention.plan
    assembled.engine.runner.attention.plan = lambda batch: widths.append(shapes(batch)) or plan(batch)
    assert run_requests(assembled.engine, requests).decided() == expected.decided()
    branching = any(any(shape) for shape in widths)
    cut = "no tree mask, so drafts are cut to chains" in assembled.description["attention"]
    # sdpa can mask, so `auto` takes it
    assert (branching, cut) == ((False, True) if chosen == "chains" else (True, False))
    assert assembled.engine.metrics.num_accepted_tokens > 50


def shapes(batch):
    """Of every guess in the batch: does it branch off?"""
    return [span.draft is not None and span.draft.parents is not None for span in batch.spans]


def test_a_backend_without_the_bit_rule_is_reported(toy_model):
    loose = make_engine(toy_model, extra=backends_plugin(Offer("loose", row_invariant=False)), attention="loose")
    assert loose.description["row_invariant"] is False
    assert make_engine(toy_model).description["row_invariant"] is True


def test_partial_and_doubled_backends_are_their_plugins_fault(toy_model):
    class Nothing:
        name = "nothing"

    with pytest.raises(PluginError, match=r"guest brings a Nothing for attention.* lacks capabilities, build"):
        make_engine(toy_model, extra=backends_plugin(Nothing()))

    class Empty(Offer):
        def build(self, spec, cache, device, dtype):
            return Nothing()

    with pytest.raises(PluginError, match="no AttentionBackend: it lacks arithmetic, writable_cache, backend_for"):
        make_engine(toy_model, extra=backends_plugin(Empty("empty")), attention="empty")
    with pytest.raises(PluginError, match="guest and builtin both bring an attention backend named 'sdpa'"):
        make_engine(toy_model, extra=backends_plugin(Offer("sdpa")))


def test_unknown_backends_are_refused_with_what_there_is(toy_model):
    with pytest.raises(ConfigError, match=r"no backend is named 'spda' .there are sdpa; did you mean 'sdpa'"):
        make_engine(toy_model, attention="spda")
    with pytest.raises(ConfigError, match="attention cpu_paged cannot serve this configuration: dtype float16"):
        make_engine(toy_model, plugins=("cpu",), attention="cpu_paged", dtype="float16")


def test_explain_answers_for_the_plugin(capsys):
    main(["plugins", "explain", "hybrid_attn", "ngram"])
    assert "hybrid_attn works with ngram" in capsys.readouterr().out
    main(["plugins", "list"])
    assert "attention.hybrid" in capsys.readouterr().out
