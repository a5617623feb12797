"""What is wrong with a draft model or its options is said at start-up, before anything is served."""

from __future__ import annotations

import json

import pytest
import torch
from eagle_engines import eagle_engine, memory_for, write_draft, write_target
from hybrids import Offer
from safetensors.torch import load_file, save_file
from toy_heads import change_tensors, write_head

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.errors import ConfigError, SpecserveError
from specserve.hookspecs import hookimpl
from specserve.plugins.options import convert
from specserve_eagle.options import EagleOptions
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


def refusal(target, draft=None, **settings):
    """The message with which start-up ends."""
    options = {"model": str(draft)} if draft is not None else {}
    with pytest.raises(SpecserveError) as refused:
        make_engine(target, plugins=("eagle",), plugin_options={"eagle": options | settings})
    return str(refused.value)


# --- the draft model ------------------------------------------------------------------------------------


def test_without_a_draft_model_it_asks_for_one(target):
    assert "eagle.model is not set" in refusal(target)
    assert "--set eagle.model=PATH" in refusal(target)


def test_a_directory_that_does_not_exist_is_named(target, tmp_path):
    assert str(tmp_path / "nowhere") in refusal(target, tmp_path / "nowhere")


def test_a_directory_without_a_model_is_named(target, tmp_path):
    assert f"{tmp_path}' is an empty directory" in refusal(target, tmp_path)


DAMAGED = {
    "config.json": (b"{", "is not readable JSON"),
    "model.safetensors": (b"\xff" * 100, "model.safetensors"),
}


@pytest.mark.parametrize("name", [*DAMAGED, "model.safetensors of none"])
def test_damaged_files_are_told_with_the_options_before_the_target_is_loaded(target, tmp_path, name):
    draft, file = write_draft(tmp_path / "head", "eagle3", target), name.split()[0]
    (draft / file).unlink()
    content, message = DAMAGED.get(name, (None, "has no weights"))
    if content is not None:
        (draft / file).write_bytes(content)
    with pytest.raises(ConfigError, match=r"^option of plugin eagle: eagle\.model: ") as refused:
        convert("eagle", EagleOptions, {"model": str(draft)})
    assert message in str(refused.value)
    assert str(draft) in str(refused.value)


@pytest.mark.parametrize(("other", "message"), [
    ({"hidden_size": 48}, "target_hidden_size of the head: 32; of the target: hidden states of 48"),
    ({"vocab_size": 72}, "vocabulary of the head: 64 tokens; of the target: 72"),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["eagle", "eagle3", "mtp"])
def test_a_head_for_another_target_is_refused(tmp_path, kind, other, message):
    target = write_target(tmp_path / "target", **other)
    found = refusal(target, write_draft(tmp_path / "head", kind, target))
    assert message in found
    assert "was trained for another target" in found


def test_a_standalone_model_with_another_vocabulary_is_refused(target, tmp_path):
    draft = write_target(tmp_path / "draft", vocab_size=72)
    found = refusal(target, draft)
    assert "needs the target's vocabulary of 64 tokens; this one has 72" in found


def test_a_plain_checkpoint_of_the_target_is_not_its_own_mtp_head(tmp_path):
    """It is its own stand-alone draft model, which is slow and right."""
    target = write_target(tmp_path / "target")
    assert eagle_engine(target, target).drafting.guards[0].drafter.needs.hidden_layers == ()


@pytest.mark.parametrize("kind", ["eagle3", "standalone"])
def test_pickles_are_refused(target, tmp_path, kind):
    draft = write_draft(tmp_path / "draft", kind, write_target(tmp_path / "draft"))
    tensors = load_file(draft / "model.safetensors")
    (draft / "model.safetensors").unlink()
    torch.save(tensors, draft / "pytorch_model.bin")
    found = refusal(target, draft)
    assert "pytorch_model.bin" in found
    assert "safetensors" in found


@pytest.mark.parametrize("kind", ["eagle3", "eagle", "mtp", "standalone"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_file_is_refused(target, tmp_path, kind, share):
    draft = write_draft(tmp_path / "draft", kind, write_target(tmp_path / "draft"))
    file = draft / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    assert str(file) in refusal(target, draft)


def test_a_config_that_is_no_json_is_refused(target, tmp_path):
    draft = write_draft(tmp_path / "draft", "eagle3", target)
    (draft / "config.json").write_text("{")
    assert str(draft / "config.json") in refusal(target, draft)


def test_a_missing_and_a_superfluous_tensor_are_refused_by_name(target, tmp_path):
    draft = write_draft(tmp_path / "draft", "eagle3", target)
    change_tensors(draft, midlayer__hidden_norm__weight=None, midlayer__more__weight=torch.zeros(3))
    assert "midlayer.hidden_norm.weight" in refusal(target, draft)
    change_tensors(draft, midlayer__hidden_norm__weight=torch.ones(32))
    assert "midlayer.more.weight" in refusal(target, draft)


def test_an_eagle3_head_whose_layers_the_target_lacks_is_refused(target, tmp_path):
    head = write_head(tmp_path / "head", "specforge", eagle_aux_hidden_state_layer_ids=[1, 2, 5])
    assert "reads hidden states [1, 2, 5] of its target, but this target has 2 layers" in refusal(target, head)


# --- options --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "message"), [
    ({"steps": 0}, "steps"),
    ({"steps": 17}, "steps"),
    ({"steps": "often"}, "steps"),
    ({"topk": 0}, "topk"),
    ({"topk": 17}, "topk"),
    ({"draft_tokens": 1}, "draft_tokens"),
    ({"draft_tokens": 257}, "draft_tokens"),
    ({"step": 3}, "steps"),
    ({"steps": 3, "draft_tokens": 5}, "draft_tokens of a chain is steps + 1; got steps = 3 and draft_tokens = 5"),
    ({"steps": 2, "topk": 2, "draft_tokens": 8}, "draft_tokens must be at most 7"),
    ({"steps": 3, "topk": 3, "draft_tokens": 23}, "draft_tokens must be at most 22"),
])  # fmt: skip
def test_options_out_of_range_or_against_each_other_are_refused(target, tmp_path, settings, message):
    draft = write_draft(tmp_path / "draft", "eagle3", target)
    for values in (
        settings,
        {name: str(value) for name, value in settings.items()},
    ):  # a file's, and the command line's
        assert message in refusal(target, draft, **values)


def test_draft_tokens_are_judged_again_once_a_head_is_on_disk(target, tmp_path, monkeypatch):
    monkeypatch.setattr("specserve_eagle.options.check_files", lambda model: None)
    draft = write_draft(tmp_path / "draft", "eagle3", target)
    assert "draft_tokens must be at most 22" in refusal(target, draft, steps=3, topk=3, draft_tokens=30)


@pytest.mark.parametrize("settings", [
    {"steps": 3, "draft_tokens": 4}, {"steps": 2, "topk": 2, "draft_tokens": 7}, {"steps": 16, "topk": 16}, {},
])  # fmt: skip
def test_options_at_their_limits_are_taken(target, tmp_path, settings):
    draft = write_draft(tmp_path / "draft", "eagle3", target)
    engine = eagle_engine(target, draft, settings=settings)
    run_requests(engine, [toy_request("r", range(20))])
    assert engine.metrics.num_draft_tokens > 0
    assert not engine.metrics.drafter_faults


# --- memory and attention -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["standalone", "eagle3"])
def test_a_cache_too_small_for_draft_layers_too_says_how_much_they_take(target, tmp_path, kind):
    draft = write_draft(tmp_path / "draft", kind, target)
    make_engine(target, kv_memory=memory_for(2, target, draft))
    with pytest.raises(ConfigError, match=r"bytes, and \d+ bytes for draft tokens; got room for 1\. .*--kv-memory"):
        eagle_engine(target, draft, kv_memory=memory_for(1, target, draft))
    engine = eagle_engine(target, draft, kv_memory=memory_for(2, target, draft))
    assert engine.parts.cache.num_blocks == 2


@pytest.mark.parametrize("kind", ["standalone", "eagle3"])
def test_all_caches_together_are_within_the_memory_that_was_given(target, tmp_path, kind):
    engine = eagle_engine(target, write_draft(tmp_path / "draft", kind, target), kv_memory="1M")
    runtime = engine.drafting.guards[0].drafter.runtime
    taken = [engine.parts.cache.data, runtime.resources.attention.cache.data, runtime.draft_blocks.states]
    total = sum(tensor.nbytes for tensor in taken if tensor is not None)
    per_block = total / engine.parts.cache.num_blocks
    assert 2**20 - per_block < total <= 2**20


class Backends:
    def __init__(self, **claims):
        self.attention_backends = hookimpl(lambda: [Offer("plain", block_sizes=(16,), **claims)])


def with_backend(target, draft, **options):
    declaration = PluginDeclaration(name="other", provides={"attention.backend": "a test's"})
    extra = {"other": InProcessPlugin(Backends(**options.pop("claims", {})), declaration)}
    return eagle_engine(target, draft, extra=extra, attention="plain", **options)


def test_a_backend_that_cannot_hide_the_first_key_is_refused_for_a_head(target, tmp_path):
    draft = write_draft(tmp_path / "draft", "eagle3", target)
    message = (
        "attention plain cannot serve the layers of a draft model: it does not serve draft models that read hidden"
    )
    with pytest.raises(ConfigError, match=message):
        with_backend(target, draft)
    assert with_backend(target, draft, claims={"draft_layers": True}).drafting.guards


def test_a_backend_that_cannot_hide_the_first_key_serves_a_standalone_model(target):
    engine = with_backend(target, target)
    run_requests(engine, [toy_request("r", range(20))])
    assert engine.metrics.num_accepted_tokens == engine.metrics.num_draft_tokens > 0


def test_attention_auto_leaves_the_draft_layers_to_a_backend_that_can(target, tmp_path):
    """The target's is the one that is chosen without a draft model, or one as good."""
    draft = write_draft(tmp_path / "draft", "eagle3", target)
    declaration = PluginDeclaration(name="other", provides={"attention.backend": "a test's"})
    claims = {"made_for": ("prefill", "decode", "verify"), "paged": True}
    extra = {"other": InProcessPlugin(Backends(**claims), declaration)}
    engine = eagle_engine(target, draft, extra=extra)
    assert engine.drafting.guards[0].drafter.runtime.resources.attention.name == "sdpa"


@pytest.mark.parametrize("decode", ["sdpa", "cpu_paged"])
def test_under_hybrid_attention_the_draft_layers_have_the_backend_for_decoding(target, tmp_path, decode):
    other = {"sdpa": "cpu_paged", "cpu_paged": "sdpa"}[decode]
    tables = {"hybrid_attn": {"prefill": other, "decode": decode, "verify": other}}
    engine = eagle_engine(
        target, write_draft(tmp_path / "draft", "eagle3", target), beside=("hybrid_attn",), plugin_options=tables,
        default_plugins=True,
    )  # fmt: skip
    assert engine.drafting.guards[0].drafter.runtime.resources.attention.backend_for(None).name == decode


# --- lengths --------------------------------------------------------------------------------------------


def test_requests_beyond_a_short_standalone_model_go_on_without_drafts(target, tmp_path):
    draft = write_target(tmp_path / "draft", max_position_embeddings=64)
    weights = load_file(target / "model.safetensors")
    save_file(weights, draft / "model.safetensors", metadata={"format": "pt"})
    requests = [
        toy_request("crosses", range(40), max_tokens=60, ignore_eos=True),
        toy_request("beyond", [*range(60), *range(40)], max_tokens=20, ignore_eos=True),
        toy_request("within", range(10), max_tokens=40, ignore_eos=True),
    ]
    engine = eagle_engine(target, draft, max_num_batched_tokens=48)
    outcome = run_requests(engine, requests)
    assert outcome.decided() == run(target, requests).decided()
    figures = {name: output.steps[-1].stats for name, output in outcome.outputs.items()}
    # the first token comes with the prompt; every step has four draft tokens and one more
    assert figures["within"].num_accepted_draft_tokens == figures["within"].num_draft_tokens == 39 - 8
    assert figures["crosses"].num_accepted_draft_tokens == figures["crosses"].num_draft_tokens > 15
    assert figures["beyond"].num_draft_tokens == 0
    assert not engine.metrics.drafter_faults


def test_a_request_beyond_a_short_model_leaves_blocks_that_others_are_drafted_from(target, tmp_path):
    draft = write_target(tmp_path / "draft", max_position_embeddings=64)
    shared, longer = range(32), [*range(32), *range(50)]
    engine = eagle_engine(target, draft)
    run_requests(engine, [toy_request("long", longer, max_tokens=4, ignore_eos=True)])
    outcome = run_requests(engine, [toy_request("short", [*shared, 5], max_tokens=9, ignore_eos=True)])
    assert outcome.outputs["short"].steps[0].cached_tokens == 32
    assert outcome.outputs["short"].steps[-1].stats.num_draft_tokens > 0


@pytest.mark.parametrize("kind", ["standalone", "eagle3"])
@pytest.mark.parametrize("topk", [1, 3])
def test_requests_that_fill_the_context_are_drafted_up_to_its_end(target, tmp_path, kind, topk):
    draft = write_draft(tmp_path / "draft", kind, target)
    options = {"max_model_len": 40, "block_size": 4, "default_plugins": True}
    requests = [toy_request(f"{n}", range(n), max_tokens=100, ignore_eos=True) for n in (1, 20, 36, 37, 38, 39)]
    engine = eagle_engine(target, draft, settings={"topk": topk}, **options)
    outcome = run_requests(engine, requests)
    assert outcome.decided() == run(target, requests, **options).decided()
    assert all(len(tokens) == 40 - int(name) for name, tokens in outcome.tokens().items())
    assert not engine.metrics.drafter_faults
    assert outcome.outputs["37"].steps[-1].stats.num_draft_tokens > 0


def test_a_config_of_a_draft_model_may_have_unknown_keys(target, tmp_path):
    draft = write_draft(tmp_path / "draft", "eagle3", target)
    config = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps(config | {"novelty": {"a": [1]}}))
    assert eagle_engine(target, draft).drafting.guards
