"""Other plugins beside models of transformers: drafts are accepted, adapters apply, and no answer changes."""

from __future__ import annotations

import pytest
import torch
from architectures import KINDS, write_model
from peft_text import peft_text, write_peft
from runs import PROMPTS, options_of
from transformers import AutoModelForCausalLM

from covering import covering
from specserve.protocols import Drafter, DrafterNeeds
from specserve.types import StructuredOutput
from specserve_lora.modules import modules_of
from specserve_workbench.testing.engines import make_engine, run, run_requests, verify_everything
from specserve_workbench.testing.requests import STRUCTURED, toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint
from toy_adapters import lora_of, under

REPEATING = [toy_request(f"r{i}", [5 + i, 6, 7, 8] * 12, max_tokens=40, ignore_eos=True) for i in range(3)]


def run_beside(path, requests, *plugins, **tables):
    return run_requests(verify_everything(make_engine(path, **options_of("cpu", *plugins, **tables)).engine), requests)


@pytest.mark.parametrize("name", KINDS)
def test_n_grams_change_nothing(tmp_path, name):
    path, requests = write_model(tmp_path, name), [*varied_requests(8), *REPEATING]
    drafted = run_beside(path, requests, "ngram")
    assert drafted.decided() == run(path, requests, **options_of()).decided()
    assert drafted.metrics.num_accepted_tokens > 0


@pytest.mark.parametrize("name", KINDS)
def test_trees_of_a_stand_alone_draft_model_change_nothing(tmp_path, name):
    path, requests = write_model(tmp_path / "target", name), varied_requests(8)
    draft = write_checkpoint(tmp_path / "draft")
    drafted = run_beside(path, requests, "eagle", eagle={"model": str(draft), "steps": 3, "topk": 2})
    assert drafted.decided() == run(path, requests, **options_of()).decided()
    assert drafted.metrics.num_draft_tokens > 50


def test_a_draft_of_the_same_numbers_is_accepted(tmp_path):
    """A Llama is served by transformers as the target, by the engine as the draft model."""
    path = write_model(tmp_path, "LlamaForCausalLM")
    drafted = run_beside(path, REPEATING, "eagle", eagle={"model": str(path), "steps": 3})
    assert drafted.decided() == run(path, REPEATING, **options_of()).decided()
    assert drafted.metrics.num_accepted_tokens > 0.9 * drafted.metrics.num_draft_tokens


@pytest.mark.parametrize("choice", [("hybrid_attn", {"prefill": "sdpa", "decode": "cpu_paged"}), ("adaptive", {})])
def test_other_backends_and_planners_change_nothing(tmp_path, choice):
    plugin, table = choice
    path, requests = write_model(tmp_path, "Starcoder2ForCausalLM"), [*varied_requests(8), *REPEATING]
    options = options_of("cpu", *(("hybrid_attn",) if plugin == "hybrid_attn" else ()), hybrid_attn=table)
    if plugin == "adaptive":
        options["plugin_options"].pop("hybrid_attn")
    plain = run(path, requests, max_num_seqs=1, **options)
    options["plugins"] = (*options["plugins"], "ngram", *(("adaptive",) if plugin == "adaptive" else ()))
    assert run(path, requests, **options).decided() == plain.decided()


def test_a_grammar_is_kept(tmp_path):
    path = write_model(tmp_path, "CohereForCausalLM")
    forms = [StructuredOutput(kind=kind, text=STRUCTURED[kind]) for kind in ("json_schema", "regex", "choice")]
    requests = [
        toy_request(f"g{i}", PROMPTS["r20"], max_tokens=80, structured_output=form) for i, form in enumerate(forms)
    ]
    drafted = run_beside(path, requests, "grammar", "ngram")
    assert drafted.decided() == run(path, requests, **options_of("cpu", "grammar")).decided()


# --- hidden states --------------------------------------------------------------------------------------


class Reader(Drafter):
    """Keeps what it may read of the layers, and drafts nothing."""

    name, needs = "reader", DrafterNeeds(hidden_layers=(0, 1, 2), every_step=True)

    def __init__(self):
        self.seen = []

    def propose(self, batch, output, verdict, limits):
        self.seen.append({layer: states.clone() for layer, states in output.hidden.items()})
        return [None] * len(limits)


@covering(name=KINDS, graphs=["none", "piecewise"])
def test_hidden_states_are_those_of_transformers(tmp_path, name, graphs):
    path, reader = write_model(tmp_path, name), Reader()
    prompt = PROMPTS["r20"]
    run(path, [toy_request("r", prompt, max_tokens=2)], reader, graphs=graphs, **options_of())
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    last = theirs.base_model.layers[-1]
    ends = []
    last.register_forward_hook(lambda _, args, out: ends.append(out[0] if isinstance(out, tuple) else out))
    with torch.inference_mode():
        found = theirs(torch.tensor([prompt]), output_hidden_states=True).hidden_states
    for layer, expected in enumerate((found[0], found[1], ends[0])):
        torch.testing.assert_close(reader.seen[0][layer], expected.reshape(20, -1), rtol=1e-4, atol=1e-4)


# --- adapters -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # PEFT 0.21 asks for it
@covering(name=KINDS, kernels=["cpu", "torch"])
def test_adapters_give_the_text_of_peft(tmp_path, name, kernels):
    """Beside requests of the base model, and with drafts."""
    path = write_model(tmp_path / "model", name)
    adapter = write_peft(tmp_path / "adapter", path, target_modules="all-linear")
    found, plain = adapted_and_plain(path, adapter, kernels)
    assert {name: found[name] for name in PROMPTS} == peft_text(path, adapter, 24)
    assert {name: found[name] for name in plain} == plain
    assert any(found[name] != plain[f"base {name}"] for name in PROMPTS)


EXPERTS = ["experts.gate_up_proj", "experts.down_proj"]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@covering(name=["GptOssForCausalLM", "MixtralForCausalLM", "Qwen2MoeForCausalLM"], kernels=["cpu", "torch"])
def test_adapters_of_experts_give_the_text_of_peft(tmp_path, name, kernels):
    """Beside requests of the base model, and with drafts."""
    path = write_model(tmp_path / "model", name)
    adapter = write_peft(tmp_path / "adapter", path, target_modules=["q_proj"], target_parameters=EXPERTS)
    found, plain = adapted_and_plain(path, adapter, kernels)
    assert {name: found[name] for name in PROMPTS} == peft_text(path, adapter, 24)
    assert {name: found[name] for name in plain} == plain
    assert any(found[name] != plain[f"base {name}"] for name in PROMPTS)


def adapted_and_plain(path, adapter, kernels):
    """The tokens of requests under the adapter beside others, and of these others without any adapter."""
    options = options_of(kernels, "lora", "ngram", lora={"adapters": {"x": str(adapter)}})
    engine = verify_everything(make_engine(path, **options).engine)
    ours = [toy_request(name, prompt, max_tokens=24, ignore_eos=True) for name, prompt in PROMPTS.items()]
    beside = [toy_request(f"base {name}", prompt, max_tokens=24, ignore_eos=True) for name, prompt in PROMPTS.items()]
    found = run_requests(engine, [*under(lora_of(engine), ours, ["x"] * 3), *beside]).tokens()
    return found, run(path, beside, **options_of(kernels)).tokens()


def test_experts_of_a_class_are_parameters_and_no_modules(tmp_path):
    model = make_engine(write_model(tmp_path, "MixtralForCausalLM"), **options_of()).engine.runner.model
    found = modules_of(model.projections)
    assert not any("experts" in path for path in found.linear)
    assert len(found.parameters["model.layers.1.mlp.experts.gate_up_proj"].places) == 8
    assert found.parameters["model.layers.1.mlp.experts.down_proj"].out_features == 64
