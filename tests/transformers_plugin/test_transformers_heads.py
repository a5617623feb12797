"""Draft heads for models that transformers computes: they draft what their papers say over transformers' own hidden
states, and change no answer."""

from __future__ import annotations

from functools import cache, partial

import pytest
import torch
from architectures import write_model
from eagle_engines import Recorder, eagle_engine, transformers_target, write_draft
from peft_text import write_peft
from reference_heads import draft_greedily
from runs import ALL, options_of
from toy_block_heads import Reference, random_block_head
from toy_heads import HEADS, INNER, KV_HEADS, H, V, random_head, write_head

import drafted_requests
from covering import covering
from specserve.errors import ModelError
from specserve_eagle.checkpoints import read_head_config
from specserve_workbench.testing.engines import accepted, make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request
from toy_adapters import lora_of, under

CLASSES = {
    "Exaone4ForCausalLM": "layers that are the engine's own",
    "Qwen2MoeForCausalLM": "layers of the class",
    "Starcoder2ForCausalLM": "layer norms",
}
KINDS = ("eagle", "eagle3", "mtp", "peagle", "dspark")
BEHIND_NORM = ("eagle", "mtp")
"""Those that read what is behind the target's final norm."""
DRAFTED = [
    (name, kind) for name in CLASSES for kind in KINDS if CLASSES[name] != "layer norms" or kind not in BEHIND_NORM
]
FORMS = {"eagle": "eagle", "eagle3": "specforge", "mtp": "nextn"}
READS = {"eagle3": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}}
PROMPT = tuple(range(3, 60, 5))
SIZES = {
    "hidden_size": H,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": V,
    "bos_token_id": 2,
    "eos_token_id": 2,
}
requests_of = partial(drafted_requests.mixed_requests, 10, vocab_size=V)


@pytest.fixture(scope="module")
def target_of(tmp_path_factory):
    return cache(lambda name: write_model(tmp_path_factory.mktemp("target"), name, **SIZES))


@pytest.fixture(scope="module")
def head_of(tmp_path_factory):
    return cache(lambda kind: write_draft(tmp_path_factory.mktemp("head"), kind, None))


def drafting(target, head, kernels, *beside, planner=None, **options):
    tables = options_of(kernels)
    plugins = tuple(name for name in tables["plugins"] if name not in beside)
    options["plugin_options"] = ALL | options.get("plugin_options", {})
    return eagle_engine(target, head, planner=planner, beside=(*plugins, *beside), **options)


def drafts_of(target, head, kernels):
    """By the tokens before them."""
    recorder = Recorder()
    engine = drafting(target, head, kernels, planner=recorder, dtype="float32")
    made = run_requests(engine, [toy_request("r", PROMPT, max_tokens=32, ignore_eos=True)])
    assert not made.metrics.drafter_faults
    tokens = (*PROMPT, *made.tokens()["r"])
    return {tokens[:count]: drafts for (_, count), drafts in recorder.drafts.items()}


# --- what is drafted ------------------------------------------------------------------------------------


@covering(drafted=[each for each in DRAFTED if each[1] in FORMS], kernels=["cpu", "torch"])
def test_drafts_are_the_references_over_the_hidden_states_of_transformers(tmp_path, target_of, drafted, kernels):
    name, kind = drafted
    target, tensors = target_of(name), random_head(kind, own_tables=kind == "mtp")
    path = write_head(tmp_path, FORMS[kind], tensors, **READS.get(kind, {}))
    model = transformers_target(target)
    ends = []
    model.model.layers[-1].register_forward_hook(
        lambda _, args, out: ends.append(out[0] if isinstance(out, tuple) else out)
    )
    tables = model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach()
    found = drafts_of(target, path, kernels)
    config = read_head_config(path, make_engine(target, **options_of(kernels)).engine.runner.model)
    assert len(found) > 8
    for tokens, drafts in found.items():
        with torch.inference_mode():
            hidden = [h[0] for h in model(torch.tensor([tokens[:-1]]), output_hidden_states=True).hidden_states]
            if kind == "eagle3":  # transformers' last one is behind the final norm
                hidden[-1] = ends[-1].view(len(tokens) - 1, H)
            read = torch.cat([hidden[layer] for layer in config.hidden_layers], -1)
            expected = draft_greedily(tensors, config, (read, torch.tensor(tokens[1:])), len(drafts), tables)
        assert drafts == tuple(expected)


@covering(name=CLASSES, kernels=["cpu", "torch"])
def test_blocks_are_the_references_over_the_hidden_states_of_transformers(target_of, head_of, name, kernels):
    target = target_of(name)
    reference = Reference("dspark", random_block_head("dspark"), transformers_target(target))
    found = drafts_of(target, head_of("dspark"), kernels)
    assert len(found) > 8
    for tokens, drafts in found.items():
        with torch.inference_mode():
            assert drafts == tuple(reference.block(tokens)[0][: len(drafts)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_drafts_for_a_llama_of_transformers_what_it_drafts_for_the_engines_own(target_of, head_of, kind):
    """In float32 the layers have the same bits."""
    target = target_of("LlamaForCausalLM")
    own, theirs = Recorder(), Recorder()
    engine = eagle_engine(target, head_of(kind), planner=own, beside=("cpu",), dtype="float32")
    made = run_requests(engine, requests_of())
    by_transformers = run_requests(drafting(target, head_of(kind), "cpu", planner=theirs), requests_of())
    assert by_transformers.decided() == made.decided()
    assert own.drafts == theirs.drafts
    assert len(own.drafts) > 50


# --- what is answered -----------------------------------------------------------------------------------


@covering(
    ("drafted",), ("kernels", "dtype"),
    drafted=DRAFTED, kernels=["cpu", "torch"], dtype=["float32", "bfloat16"], at_once=[1, 8, 32],
)  # fmt: skip
def test_drafts_change_nothing(target_of, head_of, drafted, kernels, dtype, at_once):
    name, kind = drafted
    options = {"dtype": dtype, "max_num_seqs": at_once, "max_num_batched_tokens": 256}
    made = run_requests(drafting(target_of(name), head_of(kind), kernels, **options), requests_of())
    assert made.decided() == run(target_of(name), requests_of(), **options_of(kernels), **options).decided()
    good, count = accepted(made)
    assert not made.metrics.drafter_faults
    assert 0 < good < count


BESIDE = {
    ("ngram",): {},
    ("ngram", "adaptive"): {},
    ("hybrid_attn",): {"hybrid_attn": {"prefill": "sdpa", "decode": "cpu_paged"}},
    ("lora",): {},
    ("graphs",): {},
}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # PEFT 0.21 asks for it
@covering(("beside",), name=CLASSES, kind=["eagle3", "dspark"], beside=BESIDE)
def test_drafts_change_nothing_beside_another_plugin(tmp_path, target_of, head_of, name, kind, beside):
    target, tables = target_of(name), dict(BESIDE[beside])
    if "lora" in beside:
        adapter = write_peft(tmp_path, target, target_modules="all-linear")
        tables["lora"] = {"adapters": {"x": str(adapter)}}
    alone = tuple(name for name in beside if name in ("lora", "hybrid_attn"))
    plain = make_engine(target, **options_of("cpu", *alone, **tables)).engine
    graphs = "piecewise" if "graphs" in beside else "none"
    drafted = drafting(target, head_of(kind), "cpu", *beside, plugin_options=tables, graphs=graphs)
    if "adaptive" in beside:
        drafted = make_engine(
            target, **options_of("cpu", "eagle", *beside, eagle={"model": str(head_of(kind))}, **tables)
        ).engine
    expected, made = (run_requests(engine, adapted(engine, beside)) for engine in (plain, drafted))
    assert made.decided() == expected.decided()
    assert not made.metrics.drafter_faults
    assert made.metrics.num_accepted_tokens > 0
    assert (graphs != "none") == any(use.mode == "piecewise" for use in made.metrics.graph_steps)


def adapted(engine, beside):
    """Every second request under the adapter, where there is one."""
    requests = requests_of()
    return under(lora_of(engine), requests, ("x", None) * 7) if "lora" in beside else requests


def test_a_head_that_reads_what_is_behind_the_final_norm_is_refused_where_that_is_a_layer_norm(target_of, head_of):
    for kind in BEHIND_NORM:
        with pytest.raises(ModelError, match=r"Starcoder2F.* is no root-mean-square norm.*EAGLE-3.* n-gram"):
            drafting(target_of("Starcoder2ForCausalLM"), head_of(kind), "cpu")


def test_a_head_of_another_architecture_is_refused_by_name(tmp_path, target_of):
    """By what the speculators format says of its verifier."""
    path = write_head(tmp_path, "speculators-eagle3", **READS["eagle3"])
    with pytest.raises(ModelError, match=r"verifier of the head: .* of family llama; of the target: family Exaone4F"):
        drafting(target_of("Exaone4ForCausalLM"), path, "cpu")
    drafting(target_of("LlamaForCausalLM"), path, "cpu")
