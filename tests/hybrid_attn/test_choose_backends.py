"""What is chosen, what is said of it, and what is refused with which reasons."""

from __future__ import annotations

import pytest
from hybrids import hybrid_engine

from specserve.attention.sdpa import SdpaFactory
from specserve.cli import main
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.errors import ConfigError, PluginError
from specserve.hookspecs import hookimpl
from specserve.protocols import BY_SLOT, PHASES, AttentionCapabilities, AttentionNeeds, KVLayout
from specserve.testing.drafters import NoisyDrafter
from specserve.testing.engines import make_engine, run_requests
from specserve.testing.requests import TOY_VOCAB, varied_requests
from specserve_hybrid_attn.choose_backends import choose
from specserve_hybrid_attn.options import HybridOptions

NEEDS = AttentionNeeds(
    device="cpu", dtype="bfloat16", block_size=16, head_dim=32, head_bytes=64, graphs="none", drafts=False, trees=False
)
DRAFTING = AttentionNeeds(
    device="cpu", dtype="bfloat16", block_size=16, head_dim=32, head_bytes=64, graphs="none", drafts=True, trees=True
)


class Offer(SdpaFactory):
    """SDPA under another name and with other claims."""

    def __init__(self, name, **claims):
        self.name = name
        everything = {
            "paged": False, "tree_mask": True, "ragged": True, "row_invariant": True, "block_sizes": (16,),
            "devices": ("cpu",), "dtypes": ("bfloat16", "float32"),
        }  # fmt: skip
        self.capabilities = AttentionCapabilities(**(everything | claims))


def offers(*factories):
    return {factory.name: factory for factory in factories}


def name_chosen(options, available, needs):
    return choose(HybridOptions(**options), available, needs).name


SIMPLE, PAGED = Offer("simple"), Offer("paged", paged=True)
FLASH = Offer("flash", tree_mask=False, made_for=("prefill",))
TREES = Offer("trees", made_for=("decode", "verify"), paged=True)


@pytest.mark.parametrize(("options", "needs", "name"), [
    ({}, NEEDS, "hybrid(prefill=flash, decode=trees)"),
    ({}, DRAFTING, "hybrid(prefill=flash, verify=trees)"),
    ({"prefill": "simple"}, NEEDS, "hybrid(prefill=simple, decode=trees)"),
    ({"decode": "simple"}, DRAFTING, "hybrid(prefill=flash, verify=trees)"),
    ({"decode": "simple", "verify": "decode"}, DRAFTING, "hybrid(prefill=flash, verify=simple)"),
    ({"prefill": "paged", "verify": "prefill"}, DRAFTING, "hybrid(prefill=paged, verify=paged)"),
    ({"verify": "paged"}, NEEDS, "hybrid(prefill=flash, decode=trees)"),
])  # fmt: skip
def test_each_phase_gets_what_is_asked_and_else_the_best(options, needs, name):
    assert name_chosen(options, offers(SIMPLE, PAGED, FLASH, TREES), needs) == name


def test_what_keeps_the_promises_goes_before_what_is_quick():
    loose = Offer("loose", row_invariant=False, paged=True, made_for=PHASES)
    assert name_chosen({}, offers(loose, SIMPLE), NEEDS) == "hybrid(prefill=simple, decode=simple)"
    chains = Offer("chains", tree_mask=False, paged=True, made_for=PHASES)
    assert name_chosen({}, offers(chains, SIMPLE), DRAFTING) == "hybrid(prefill=chains, verify=simple)"
    assert name_chosen({}, offers(chains, SIMPLE), NEEDS) == "hybrid(prefill=chains, decode=chains)"


@pytest.mark.parametrize(("options", "claims", "reasons"), [
    ({"prefill": "smple"}, {}, ["prefill: no backend is named 'smple'", "simple", "there are simple, odd"]),
    ({"decode": "odd"}, {"devices": ("cuda",)}, ["decode=odd: device cpu is not among its cuda"]),
    ({"verify": "odd"}, {"dtypes": ("float16",)}, ["verify=odd: dtype bfloat16 is not among its float16"]),
    ({"prefill": "odd"}, {"block_sizes": (8, 32)}, ["prefill=odd: block size 16 is not among its 8, 32"]),
    ({"prefill": "odd"}, {"ragged": False}, ["prefill=odd: it takes one query length per batch"]),
    ({"prefill": "odd"}, {"head_bytes": {"cpu": 48}}, ["the model's heads of 64 bytes are no multiple of its 48"]),
    ({"prefill": "odd", "decode": "od"}, {"devices": ("cuda",), "dtypes": ("float16",)},
     ["prefill=odd: device cpu is not among its cuda, dtype bfloat16 is not among its float16", "decode: no backend"]),
])  # fmt: skip
def test_an_impossible_choice_is_refused_with_all_its_reasons(options, claims, reasons):
    available = offers(SIMPLE, Offer("odd", **claims))
    with pytest.raises(ConfigError) as refusal:
        choose(HybridOptions(**options), available, NEEDS)
    for reason in reasons:
        assert reason in str(refusal.value)


def test_where_nothing_fits_every_backend_says_why():
    available = offers(Offer("a", devices=("cuda",)), Offer("b", dtypes=("float16",)))
    with pytest.raises(ConfigError, match=r"no backend fits \(a: device cpu .* b: dtype bfloat16"):
        choose(HybridOptions(), available, NEEDS)


# --- in an engine ---------------------------------------------------------------------------------------


class Brings:
    def __init__(self, *factories):
        self.factories = factories

    @hookimpl
    def attention_backends(self):
        return self.factories


def guest(*factories, name="guest"):
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
    backends = guest(one, two, three)
    for prefill, decode in (("one", "two"), ("two", "one"), ("one", "three"), ("one", "one"), ("three", "three")):
        hybrid_engine(toy_model, settings={"prefill": prefill, "decode": decode}, extra=backends)
    assert seen == [own, own, BY_SLOT, BY_SLOT, BY_SLOT, BY_SLOT, own, BY_SLOT]


def test_backends_that_share_no_layout_are_refused_together(toy_model):
    mine, yours = (Offer(name, dtypes=("float32",), kv_layouts=(KVLayout(name),)) for name in ("mine", "yours"))
    with pytest.raises(ConfigError, match=r"hybrid\(prefill=mine, decode=yours\).*none of its KV layouts: \(none that"):
        hybrid_engine(toy_model, settings={"prefill": "mine", "decode": "yours"}, extra=guest(mine, yours))


@pytest.mark.parametrize("chosen", ["auto", "chains"])
def test_drafts_are_cut_to_chains_where_siblings_cannot_be_masked(toy_model, chosen):
    """SDPA would mask them; under the false claim no draft with branches may reach it."""
    requests = varied_requests(16)
    backend = guest(Offer("chains", tree_mask=False, dtypes=("float32",), block_sizes=(16,)))
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
    loose = make_engine(toy_model, extra=guest(Offer("loose", row_invariant=False)), attention="loose")
    assert loose.description["row_invariant"] is False
    assert make_engine(toy_model).description["row_invariant"] is True


def test_partial_and_doubled_backends_are_their_plugins_fault(toy_model):
    class Nothing:
        name = "nothing"

    with pytest.raises(PluginError, match=r"guest brings a Nothing for attention.* lacks capabilities, build"):
        make_engine(toy_model, extra=guest(Nothing()))

    class Empty(Offer):
        def build(self, spec, cache, device, dtype):
            return Nothing()

    with pytest.raises(PluginError, match=r"no AttentionBackend: it lacks arithmetic, backend_for, plan, forward"):
        make_engine(toy_model, extra=guest(Empty("empty")), attention="empty")
    with pytest.raises(PluginError, match="guest and builtin both bring an attention backend named 'sdpa'"):
        make_engine(toy_model, extra=guest(Offer("sdpa")))


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
