"""Which backend each phase gets, and the reasons of a refusal."""

from __future__ import annotations

import msgspec
import pytest
from hybrids import Offer

from specserve.attention.fitting import misfits
from specserve.errors import ConfigError
from specserve.protocols import PHASES, AttentionNeeds
from specserve_hybrid_attn.choose_backends import choose
from specserve_hybrid_attn.options import HybridOptions

NEEDS = AttentionNeeds(
    device="cpu", dtype="bfloat16", block_size=16, head_dim=32, head_bytes=64, graphs="none", drafts=False, trees=False
)
DRAFTING = AttentionNeeds(
    device="cpu", dtype="bfloat16", block_size=16, head_dim=32, head_bytes=64, graphs="none", drafts=True, trees=True
)


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


def test_only_the_backend_of_generated_positions_need_read_keys_for_a_drafter():
    needs = msgspec.structs.replace(DRAFTING, attend_only=True)
    available = offers(FLASH, Offer("reads", attend_only=True))
    chosen = choose(HybridOptions(), available, needs)
    assert chosen.name == "hybrid(prefill=flash, verify=reads)"
    assert not misfits(chosen.capabilities, needs)
    assert name_chosen({"verify": "prefill"}, available, needs) == "hybrid(prefill=reads, verify=reads)"
    with pytest.raises(ConfigError, match=r"verify=flash: it cannot read keys and values without writing some"):
        choose(HybridOptions(verify="flash"), available, needs)


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
