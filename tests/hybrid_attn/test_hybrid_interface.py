"""The composition is total: whatever the interface of attention backends has, it answers by its members."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest
import torch

from specserve.batch.builder import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve.engine.choose_attention import BACKEND_PARTS, FACTORY_PARTS
from specserve.protocols import (
    BY_SLOT,
    Arithmetic,
    AttentionBackend,
    AttentionCapabilities,
    AttentionFactory,
    KVLayout,
)
from specserve.types import Draft, GenerateRequest
from specserve_hybrid_attn.attention import HybridAttention
from specserve_hybrid_attn.factory import HybridFactory
from specserve_hybrid_attn.phases import generated_part, prompt_part


def parts_of(protocol):
    """Public members that the protocol itself names: methods, properties and annotated fields."""
    members = {*vars(protocol), *protocol.__annotations__}
    return {name for name in members if not name.startswith("_")}


class Call(NamedTuple):
    layer: int
    positions: list
    spans: list


class Recorder(AttentionBackend):
    """Answers every row with its own name's number and remembers what it was asked."""

    def __init__(self, name, value):
        self.name, self.value, self.calls, self.cache = name, value, [], None

    def plan(self, batch):
        return batch

    def forward(self, layer, q, k, v, plan):
        assert len(q) == len(k) == len(v) == plan.num_rows
        assert torch.equal(q[:, 0, 0].long(), plan.positions)
        self.calls.append(Call(layer, plan.positions.tolist(), [(s.start, s.length, s.drafted) for s in plan.spans]))
        return torch.full_like(q, self.value)

    @property
    def writable_cache(self):
        return self.cache

    def attend(self, layer, q, plan):
        return self.forward(layer, q, q, q, plan)


def request(name, prompt_len, generated):
    wire = GenerateRequest(request_id=name, prompt_token_ids=tuple(range(prompt_len)))
    made = Request.admit(wire, seed=0, arrival=0.0, order=0, max_len=100)
    made.tokens += range(generated)
    made.blocks = list(range(8))
    return made


def span_of(of, start, length, scored=1, draft=None):
    return ScheduledSpan.of(of, start, length, scored=scored, draft=draft)


def build(*spans):
    return BatchBuilder(16, torch.device("cpu")).schedule(spans)


def forward(backend, batch):
    q = batch.positions[:, None, None].float()
    return backend.forward(0, q, q, q, backend.plan(batch))[:, 0, 0].tolist()


@pytest.fixture
def hybrid():
    return HybridAttention("hybrid", Recorder("one", 1.0), Recorder("two", 2.0))


def test_the_composition_defines_every_part_of_the_interface_itself():
    assert parts_of(AttentionBackend) == {part for parts in BACKEND_PARTS.values() for part in parts}
    methods = parts_of(AttentionBackend) - {"name"}
    assert methods <= set(vars(HybridAttention)), "a new method must not be inherited: compose it"
    assert parts_of(AttentionFactory) == {part for parts in FACTORY_PARTS.values() for part in parts}
    made = {*vars(HybridFactory), *HybridFactory(Half("a"), Half("b"), "decode").__dict__}
    assert parts_of(AttentionFactory) <= made


def test_its_cache_is_writable_where_both_members_say_so_of_the_same(hybrid):
    assert hybrid.writable_cache is None
    hybrid.prompt.cache = cache = object()
    assert hybrid.writable_cache is None
    hybrid.generated.cache = cache
    assert hybrid.writable_cache is cache
    hybrid.generated.cache = object()
    assert hybrid.writable_cache is None


def test_behind_a_written_cache_every_row_goes_where_it_goes_in_forward(hybrid):
    one = span_of(request("a", 4, 4), 0, 8, scored=0)
    halves = [span_of(one.request, start, 4, scored=0) for start in (0, 4)]
    for batch in (build(one), *map(build, halves)):
        expected, q = forward(hybrid, batch), batch.positions[:, None, None].float()
        assert hybrid.attend(0, q, hybrid.plan(batch))[:, 0, 0].tolist() == expected


def test_every_capability_of_a_composition_follows_from_its_members():
    both = HybridFactory(Half("a"), Half("b"), "decode").capabilities
    strict = AttentionCapabilities(
        paged=False, tree_mask=True, ragged=False, row_invariant=False, block_sizes=(2,), devices=("cpu",),
        dtypes=("float32",), head_bytes={"cpu": 12}, max_head_dim=64, kv_layouts=(PAIRS, BY_SLOT),
        graphs=("piecewise", "full"), missing="it needs a; it needs b", asked_for=("both.x=1", "a.y=2", "b.y=2"),
    )  # fmt: skip
    assert both == strict
    # `made_for` is for choosing among offers, and a composition is not offered
    assert set(AttentionCapabilities.__struct_fields__) == {
        "paged", "tree_mask", "ragged", "row_invariant", "block_sizes", "devices", "dtypes", "head_bytes",
        "max_head_dim", "kv_layouts", "missing", "draft_layers", "graphs", "made_for", "asked_for",
        "soft_caps", "sinks", "attend_only",
    }  # fmt: skip


def test_a_composition_caps_scores_and_has_sinks_where_both_members_do():
    both, capped, plain = Half("a"), Half("b"), Half("a")
    both.capabilities = msgspec.structs.replace(both.capabilities, soft_caps=True, sinks=True)
    capped.capabilities = msgspec.structs.replace(capped.capabilities, soft_caps=True)
    for one, other, soft_caps, sinks in ((both, both, True, True), (both, capped, True, False), (plain, both, 0, 0)):
        made = HybridFactory(one, other, "decode").capabilities
        assert (made.soft_caps, made.sinks) == (soft_caps, sinks)


PAIRS = KVLayout("pairs", slots=2, numbers=8)


class Half:
    """One of two factories that agree in little."""

    def __init__(self, name):
        first = name == "a"
        self.name = name
        self.capabilities = AttentionCapabilities(
            paged=first,
            tree_mask=not first,
            ragged=not first,
            row_invariant=first,
            block_sizes=(1, 2) if first else (2, 4),
            devices=("cpu", "cuda") if first else ("cpu",),
            dtypes=("float32",) if first else ("bfloat16", "float32"),
            head_bytes={"cpu": 4} if first else {"cpu": 6, "cuda": 16},
            max_head_dim=64 if first else 128,
            missing=f"it needs {name}",
            kv_layouts=(PAIRS, KVLayout("own"), BY_SLOT) if first else (BY_SLOT, PAIRS),
            graphs=("full",) if first else ("piecewise", "full"),
            asked_for=("both.x=1", f"{name}.y=2"),
        )

    def build(self, spec, cache, device, dtype):
        return Recorder(self.name, 0.0)


def test_one_backend_for_everything_is_that_backend():
    half = Half("a")
    assert HybridFactory(half, half, "decode").build(None, None, None, None).name == "a"
    assert HybridFactory(half, Half("b"), "decode").build(None, None, None, None).name == "hybrid(prefill=a, decode=b)"


def test_a_composition_names_both_arithmetics(hybrid):
    assert hybrid.arithmetic == Arithmetic("one", "two")
    assert HybridAttention("outer", hybrid, hybrid).arithmetic == Arithmetic("one", "two")


@pytest.mark.parametrize(("spans", "name"), [
    ([(10, 0, 0, 10)], "one"),  # a whole prompt
    ([(10, 1, 10, 1)], "two"),
    ([(10, 4, 12, 2), (3, 1, 3, 1)], "two"),
    ([(10, 0, 4, 3), (3, 1, 3, 1)], "hybrid"),
    ([(10, 4, 8, 4)], "hybrid"),  # a recomputation across the prompt's end
], ids=str)  # fmt: skip
def test_a_batch_of_one_phase_goes_to_its_backend_alone(hybrid, spans, name):
    batch = build(*(span_of(request(str(i), p, g), start, n) for i, (p, g, start, n) in enumerate(spans)))
    assert hybrid.backend_for(batch).name == name
    forward(hybrid, batch)
    assert bool(hybrid.prompt.calls) == (name != "two")
    assert bool(hybrid.generated.calls) == (name != "one")


def test_rows_go_by_position_and_not_by_width(hybrid):
    draft = Draft(tokens=(5, 6, 7), parents=(-1, 0, 0))
    batch = build(
        span_of(request("decode", 4, 1), 4, 1),
        span_of(request("prompt", 40, 0), 16, 24),
        span_of(request("verify", 4, 2), 5, 1, scored=4, draft=draft),
        span_of(request("again", 4, 3), 2, 5, scored=1),  # recomputed: two prompt positions, three generated ones
        span_of(request("last of a prompt", 7, 0), 6, 1),
    )
    values = forward(hybrid, batch)
    assert values == [2.0] + [1.0] * 24 + [2.0] * 4 + [1.0, 1.0, 2.0, 2.0, 2.0] + [1.0]
    assert hybrid.prompt.calls == [Call(0, [*range(16, 40), 2, 3, 6], [(16, 24, 0), (2, 2, 0), (6, 1, 0)])]
    assert hybrid.generated.calls == [Call(0, [4, 5, 6, 7, 7, 4, 5, 6], [(4, 1, 0), (5, 4, 3), (4, 3, 0)])]


def test_parts_keep_what_attention_reads_of_a_batch():
    draft = Draft(tokens=(5, 6), parents=(-1, -1))
    batch = build(
        span_of(request("a", 4, 2), 2, 4, scored=3, draft=draft),
        span_of(request("b", 8, 0), 0, 8),
    )
    prompt, generated = prompt_part(batch), generated_part(batch)
    assert prompt.batch.query_lens == (2, 8)
    assert prompt.batch.row_offsets == (0, 2)
    assert prompt.batch.slots.tolist() == [2, 3, *range(8)]
    assert [s.draft for s in prompt.batch.spans] == [None, None]
    assert generated.rows == slice(2, 6)
    assert generated.batch.query_lens == (4,)
    assert generated.batch.spans[0].draft == draft
    assert generated.batch.spans[0].known == 2
    assert generated.batch.slots.tolist() == [4, 5, 6, 7]
    assert prompt.batch.num_scored == generated.batch.num_scored == 0
