"""Layers with capped scores, sinks and windows: in every backend chunks, neighbours and draft trees change nothing."""

from __future__ import annotations

import msgspec
import pytest

from covering import covering
from gpt_oss_attention import FAMILY, family_plugin
from specserve.attention.fitting import best_fit, misfits
from specserve.attention.sdpa import SdpaFactory
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.errors import ConfigError
from specserve.hookspecs import hookimpl
from specserve.models.read_config import read_config
from specserve.protocols import AttentionNeeds
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, make_engine, run
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

HEADS = {"gqa": (4, 2), "mha": (3, 3), "mqa": (5, 1)}
INT8 = {"plugin_options": {"cpu": {"kv": "int8"}}}
SERVED = {
    "sdpa": {"attention": "sdpa", "default_plugins": False},
    "sdpa around native layers": {"attention": "sdpa", "plugins": ("cpu",)},
    "cpu_paged": {"attention": "cpu_paged", "plugins": ("cpu",)},
    "cpu_paged, by slot": {"attention": "cpu_paged", "plugins": ("cpu",), "block_size": 1},
    "cpu_paged, 8 bits": {"attention": "cpu_paged", "plugins": ("cpu",), **INT8},
    "both": {
        "plugins": ("cpu", "hybrid_attn"),
        "plugin_options": {"hybrid_attn": {"prefill": "sdpa", "decode": "cpu_paged", "verify": "cpu_paged"}},
    },
}


@pytest.fixture(scope="module", params=HEADS)
def model(request, tmp_path_factory):
    heads, kv_heads = HEADS[request.param]
    sizes = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "score_cap": 1.5}
    return write_checkpoint(tmp_path_factory.mktemp("model"), architecture=FAMILY, **sizes)


def served(model, requests, drafter=None, **options):
    return run(model, requests, drafter, extra={"sunk": family_plugin()}, **options)


@covering(
    ("model", "by"), ("by", "dtype"), ("by", "threads"),
    model=HEADS, by=SERVED, threads=[1, 2], dtype=["float32", "bfloat16"], indirect=["model"],
)  # fmt: skip
def test_drafts_chunks_and_neighbours_change_nothing(model, by, threads, dtype):
    requests, options = varied_requests(10), {**SERVED[by], "dtype": dtype, "threads": threads}
    alone = served(model, requests, max_num_seqs=1, prefix_cache=False, **options)
    noisy = NoisyDrafter(alone.tokens(), p=0.8, max_width=8, vocab_size=TOY_VOCAB)
    drafted = served(model, requests, noisy, max_num_batched_tokens=24, **options)
    assert drafted.decided() == alone.decided()
    assert accepted(drafted)[0] > 20


@pytest.mark.parametrize("by", ["sdpa", "cpu_paged"])
def test_preemption_changes_nothing(model, by):
    requests, options = varied_requests(10, seed=2), {**SERVED[by], "dtype": "float32"}
    room = f"{450 * read_config(model, [FAMILY]).num_kv_heads}K"  # for the longest request, not for two
    tight = served(model, requests, kv_memory=room, **options)
    assert tight.metrics.num_preemptions > 0
    assert tight.decided() == served(model, requests, **options).decided()


def test_both_backends_say_the_same(model):
    requests = varied_requests(10, seed=3)
    one, other = (served(model, requests, dtype="float32", **SERVED[by]) for by in ("sdpa", "cpu_paged"))
    assert one.tokens() == other.tokens()


# --- which backend is chosen -----------------------------------------------------------------------------


def claiming(**claims):
    factory = SdpaFactory()
    factory.name = "quick"
    factory.capabilities = msgspec.structs.replace(factory.capabilities, paged=True, **claims)
    return factory


def offering(factory):
    class Plugin:
        @hookimpl
        def attention_backends(self):
            return [factory]

    declaration = PluginDeclaration(name="guest", provides={"attention.backend": "a test's"})
    return {"guest": InProcessPlugin(Plugin(), declaration), "sunk": family_plugin()}


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ({"soft_caps": False}, "it does not cap scores, as the model's layers do"),
        ({"sinks": False}, "it has no attention sinks, as the model's layers have"),
    ],
    ids=str,
)
def test_a_backend_without_them_is_passed_over_and_naming_it_is_refused(model, lacks, reason):
    extra = offering(claiming(**lacks))
    assert make_engine(model, extra=extra).description["attention"] == "sdpa (builtin)"
    with pytest.raises(ConfigError, match=f"attention quick cannot serve this configuration: {reason}"):
        make_engine(model, extra=extra, attention="quick")


def test_a_backend_without_them_serves_layers_that_have_none(toy_model):
    extra = offering(claiming(soft_caps=False, sinks=False))
    assert make_engine(toy_model, extra=extra).description["attention"] == "sdpa (guest)"


def test_needs_without_them_ask_for_nothing():
    needs = AttentionNeeds(
        device="cpu", dtype="float32", block_size=16, head_dim=64, head_bytes=256, graphs="none", drafts=False,
        trees=False,
    )  # fmt: skip
    plain = claiming(soft_caps=False, sinks=False)
    assert misfits(plain.capabilities, needs) == []
    capped = msgspec.structs.replace(needs, soft_caps=True, sinks=True)
    assert len(misfits(plain.capabilities, capped)) == 2
    assert best_fit({"quick": plain}, capped, capped.phases) is None
