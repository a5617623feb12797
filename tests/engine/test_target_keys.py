"""Drafters whose layers read the target's keys and values: what they see, that nothing is written, what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from specserve.attention.sdpa import SdpaFactory
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.engine.target_keys import check_target_keys
from specserve.errors import ConfigError, PluginError
from specserve.hookspecs import hookimpl
from specserve.kv.slots import slots_of
from specserve.models.part import ModelPart
from specserve.protocols import PHASES, Drafter, DrafterNeeds, TargetKeys
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

FULL, SLIDING = "full_attention", "sliding_attention"
TWO_SIZES = {"layer_types": [SLIDING, FULL, FULL, FULL], "num_hidden_layers": 4, "num_kv_shared_layers": 1}
KEYS = TargetKeys(num_heads=6, scale=0.3, sources=(2, 0, 0, 2), sliding_windows=(None, 5, 20, 3))
SIZES = {0: 16, 2: 32}
"""Of heads, by layer of the target."""


class Reading(Drafter):
    """Attends with queries of its own in every step, twice for each request, and drafts nothing."""

    name = "reading"

    def __init__(self, keys: TargetKeys = KEYS) -> None:
        self.needs = DrafterNeeds(target_keys=keys)
        self.cache, self.differences, self.num_written, self.lengths = None, [], 0, []

    def connect_target_keys(self, keys):
        self.reader = keys.reader

    def propose(self, batch, output, verdict, limits):
        requests = [span.request for span, limit in zip(batch.spans, limits, strict=True) if limit]
        requests = [each for each in requests for _ in range(2)]
        if not requests:
            return [None] * len(limits)
        parts = (self.cache, *self.cache.others)
        before = [part.data.clone() for part in parts]
        plan = self.reader.plan(requests)
        self.lengths += [request.computed for request in requests]
        for layer, source in enumerate(KEYS.sources):
            generator = torch.Generator().manual_seed(layer)
            q = torch.randn(len(requests), 6, SIZES[source], generator=generator)
            out = self.reader.attend(layer, q, plan)
            expected = torch.stack([self.expected(layer, row, each) for row, each in zip(q, requests, strict=True)])
            self.differences.append(float((out - expected).abs().max()))
        self.num_written += sum(not torch.equal(part.data, was) for part, was in zip(parts, before, strict=True))
        return [None] * len(limits)

    def expected(self, layer, q, request):
        """[6, d], from the keys of all computed tokens or the latest of them."""
        part, place = {0: (self.cache, 0), 2: (self.cache.others[0], 1)}[KEYS.sources[layer]]
        window = KEYS.sliding_windows[layer]
        first = 0 if window is None else max(0, request.computed - window)
        slots = slots_of(request.blocks, range(first, request.computed), self.cache.block_size)
        k, v = (kept[list(slots)].repeat_interleave(3, 1).transpose(0, 1) for kept in part.slots[place])
        return scaled_dot_product_attention(q[:, None], k, v, scale=KEYS.scale)[:, 0]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("model"), architecture="gemma4_text", **TWO_SIZES)


def watched(model, **options):
    drafter = Reading()
    engine = make_engine(model, drafter, dtype="float32", kv_memory="600K", **options).engine
    drafter.cache = engine.parts.cache
    run = run_requests(engine, varied_requests(12))
    assert not run.metrics.drafter_faults
    assert len(drafter.differences) > 200
    assert max(drafter.lengths) > 60
    assert drafter.num_written == 0
    return drafter, run


def test_a_query_sees_the_keys_that_are_computed_as_far_as_its_window_goes(model):
    drafter, _ = watched(model)
    assert max(drafter.differences) < 1e-5


def test_native_attention_reads_keys_where_they_lie(model):
    """By slot: blocks of 8 are no panels."""
    drafter, _ = watched(model, block_size=8, plugins=("cpu",))
    assert max(drafter.differences) < 1e-5


@pytest.mark.parametrize("options", [{}, {"cpu": {"kv": "int8"}}], ids=["panels", "8 bits"])
def test_other_layouts_are_read_by_the_backend_that_wrote_them(model, options):
    """The same numbers come from blocks that lie by slot, as far as 8 bits go."""

    def outputs(block_size, options):
        made = []
        drafter = Reading()
        drafter.expected = lambda layer, q, request: torch.zeros(q.shape)
        engine = make_engine(
            model, drafter, plugins=("cpu",), plugin_options=options, dtype="float32", block_size=block_size
        ).engine
        drafter.cache = engine.parts.cache
        attend = drafter.reader.attend
        drafter.reader.attend = lambda *args: made.append(attend(*args)) or made[-1]
        run = run_requests(engine, [toy_request("r", range(1, 70), max_tokens=9, ignore_eos=True)])
        assert not run.metrics.drafter_faults
        assert drafter.num_written == 0
        return torch.cat([out.flatten() for out in made[:16]]), engine.runner.attention.backends[0].spec.kv_layout.name

    by_slot, named = outputs(8, {})
    others, layout = outputs(16, options)
    assert (named, layout) == ("by_slot", "panels-int8" if options else "panels")
    torch.testing.assert_close(others, by_slot, atol=0.05 if options else 1e-5, rtol=0)


def test_a_backend_that_cannot_attend_alone_is_not_chosen(model):
    class Unable(SdpaFactory):
        name = "unable"
        capabilities = msgspec.structs.replace(SdpaFactory.capabilities, attend_only=False, made_for=PHASES)

    class Plugin:
        @hookimpl
        def attention_backends(self):
            return [Unable()]

    declared = PluginDeclaration(name="guest", provides={"attention.backend": "a test's"})
    options = {"extra": {"guest": InProcessPlugin(Plugin(), declared)}}
    assert make_engine(model, Reading(), **options).engine.runner.attention.name.startswith("sdpa")
    with pytest.raises(ConfigError, match=r"unable cannot serve .* read keys and values without writing some"):
        make_engine(model, Reading(), attention="unable", **options)
    hybrid = {"plugins": ("hybrid_attn",), "plugin_options": {"hybrid_attn": {"prefill": "unable", "verify": "sdpa"}}}
    chosen = make_engine(model, Reading(), **options, **hybrid).engine.runner.attention.name
    assert "hybrid(prefill=unable, verify=sdpa)" in chosen


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": (0, 3), "sliding_windows": (None, None)}, r"keys of layer 3 .*there are 0 to 2.*made for this"),
        ({"num_heads": 5}, "reading has 5 query heads, which must be a multiple of the 2 key heads"),
        ({"sliding_windows": (None,)}, "in 4 layers .* with 1 windows"),
    ],
)
def test_what_does_not_fit_the_target_is_refused(model, changes, message):
    with pytest.raises(PluginError, match=message):
        make_engine(model, Reading(msgspec.structs.replace(KEYS, **changes)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 6.0}, r"num_heads: must be .*; got 6\.0"),
        ({"num_heads": True}, "num_heads: must be .*; got true"),
        ({"sources": (2, 0, "0", 2)}, r"sources\[2\]: must be .*; got \"0\""),
        ({"sources": None}, "sources: must be .*; got null"),
        ({"sliding_windows": (None, 5, 20.5, 3)}, r"sliding_windows\[2\]: must be .*; got 20\.5"),
        (
            {"sliding_windows": (None, 0, 20, 3)},
            r"sliding_windows\[1\] must be from 1 to 2147483647, or None .*; got 0",
        ),
        ({"sliding_windows": (None, 5, 20, 2**31)}, r"sliding_windows\[3\] must be from 1 .*; got 2147483648"),
        ({"scale": "1"}, 'scale: must be .*; got "1"'),
        ({"scale": 0.0}, r"scale must be a finite number above 0; got 0\.0"),
        ({"scale": -1.0}, r"scale must be a finite number above 0; got -1\.0"),
        ({"scale": float("inf")}, "scale must be a finite number above 0; got inf"),
        ({"scale": float("nan")}, "scale must be a finite number above 0; got nan"),
    ],
    ids=str,
)
def test_values_that_fit_no_target_are_refused(model, changes, message):
    wrong = rf"^drafter reading, target_keys: {message}\. Repair the plugin, or remove --plugin reading\.$"
    with pytest.raises(PluginError, match=wrong):
        make_engine(model, Reading(msgspec.structs.replace(KEYS, **changes)))


@pytest.mark.parametrize("plugins", [(), ("cpu",)], ids=["torch", "cpu"])
@pytest.mark.parametrize("window", [1, 2**31 - 1])
def test_the_narrowest_and_the_widest_window_are_read(model, monkeypatch, window, plugins):
    keys = msgspec.structs.replace(KEYS, sliding_windows=(window,) * 4)
    monkeypatch.setattr(f"{__name__}.KEYS", keys)
    drafter = Reading(keys)
    engine = make_engine(model, drafter, plugins=plugins, block_size=8, dtype="float32").engine
    drafter.cache = engine.parts.cache
    run = run_requests(engine, [toy_request("r", range(1, 70), max_tokens=9, ignore_eos=True)])
    assert not run.metrics.drafter_faults
    assert max(drafter.differences) < 1e-5


def test_keys_that_several_processes_have_parts_of_are_refused():
    parts = SimpleNamespace(part=ModelPart())
    check_target_keys(parts, [SimpleNamespace(needs=DrafterNeeds())], None)
    with pytest.raises(ConfigError, match=r"drafter reading reads the target's keys .* several processes"):
        check_target_keys(parts, [Reading()], None)


def test_needs_of_another_type_are_refused(model):
    with pytest.raises(PluginError, match="the target's keys that its drafter needs"):
        make_engine(model, Reading("all"))
