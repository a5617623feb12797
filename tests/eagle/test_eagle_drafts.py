"""What each kind of draft model drafts at every step, against the reference over transformers' states."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from eagle_engines import Recorder, eagle_engine, transformers_target, write_target
from reference_heads import draft_greedily
from toy_heads import (
    HEAD_DIM,
    LAYERS,
    D,
    H,
    V,
    random_head,
    reduced_vocabulary,
    toy_target,
    with_second_layer,
    with_target_norms,
    write_head,
)

from covering import covering
from specserve_eagle.checkpoints import read_head_config
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request

pytestmark = pytest.mark.usefixtures("each_kernel_set")

K, NUM_TOKENS, PROMPT = 4, 32, tuple(range(3, 60, 5))


def with_biases(head, names, seed=9):
    generator = torch.Generator().manual_seed(seed)
    return head | {f"{name}.bias": 0.3 * torch.randn(len(head[name]), generator=generator) for name in names}


QKVO = [f"layers.0.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")]
GATED = [f"layers.0.{name}" for name in ("gate_proj", "up_proj", "down_proj")]


def with_qk_norms(head):
    norms = 1 + 0.3 * torch.randn(2, HEAD_DIM, generator=torch.Generator().manual_seed(5))
    return head | {"layers.0.q_norm": norms[0], "layers.0.k_norm": norms[1]}


def with_inner(head, size):
    """MLPs of another width."""
    cut = {name: head[f"layers.0.{name}"][:size] for name in ("gate_proj", "up_proj")}
    cut["down_proj"] = head["layers.0.down_proj"][:, :size]
    return head | {f"layers.0.{name}": tensor for name, tensor in cut.items()}


def whole_vocabulary(head):
    return {name: tensor for name, tensor in head.items() if name not in ("d2t", "t2d", "lm_head")}


def without(head, name):
    return {other: tensor for other, tensor in head.items() if other != name}


CASES = {
    "eagle": ("eagle", random_head("eagle"), {}),
    "eagle-without-fc-bias": ("eagle", without(random_head("eagle"), "fc.bias"), {}),
    "eagle-own-tables": ("eagle", random_head("eagle", own_tables=True), {}),
    "eagle-qkv-bias": ("eagle", with_biases(random_head("eagle"), QKVO[:3]), {"qkv_bias": True}),
    "eagle-speculators": ("speculators-eagle", random_head("eagle"), {}),
    "eagle3": ("specforge", random_head("eagle3"), {}),
    "eagle3-normed-residual": ("specforge", random_head("eagle3"), {"norm_before_residual": True}),
    "eagle3.1": (
        "specforge", with_target_norms(random_head("eagle3")), {"fc_norm": True, "norm_output": True}
    ),
    "eagle3.1-speculators": (
        "speculators-eagle3", with_target_norms(random_head("eagle3")), {"fc_norm": True, "norm_output": True}
    ),
    "eagle3-norm-before-fc": ("vllm-eagle3", with_target_norms(random_head("eagle3"), 3 * H), {"norm_before_fc": True}),
    "eagle3-norm-output": ("specforge", random_head("eagle3"), {"eagle_config": {"norm_output": True}}),
    "eagle3-speculators": ("speculators-eagle3", random_head("eagle3"), {}),
    "eagle3-own-tables": (
        "vllm-eagle3", random_head("eagle3", own_tables=True) | reduced_vocabulary(torch.randn(D, H)), {}
    ),
    "eagle3-whole-vocabulary": ("specforge", whole_vocabulary(random_head("eagle3")), {"draft_vocab_size": V}),
    "eagle3-biases": ("specforge", with_biases(random_head("eagle3"), ["fc", *QKVO, *GATED]), {
        "attention_bias": True, "mlp_bias": True, "bias": True,
    }),
    "eagle3-layers": (
        "specforge", random_head("eagle3"), {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 3, LAYERS - 2]}}
    ),
    "eagle3-qk-norms": (
        "specforge", with_qk_norms(random_head("eagle3")), {"architectures": ["Qwen3ForCausalLMEagle3"]}
    ),
    "eagle3-odd-inner": ("specforge", with_inner(random_head("eagle3"), 41), {"intermediate_size": 41}),
    "eagle3-rope": ("specforge", random_head("eagle3"), {"rope_theta": 500.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }}),
    "eagle-two-layers": ("eagle", with_second_layer(random_head("eagle")), {"num_hidden_layers": 2}),
    "eagle3-two-layers": ("specforge", with_second_layer(random_head("eagle3")), {"num_hidden_layers": 2}),
    "mtp": ("deepseek-beside", random_head("mtp"), {}),
    "mtp-own-tables": ("deepseek-beside", random_head("mtp", own_tables=True), {}),
    "mtp-nextn": ("nextn", random_head("mtp", own_tables=True), {}),
    "mtp-qwen": ("qwen-beside", random_head("mtp"), {}),
    "mtp-speculators": ("speculators-mtp", random_head("mtp"), {}),
    "mtp-inside": ("deepseek-inside", random_head("mtp"), {}),
    "mtp-hidden-first": ("mimo", random_head("mtp"), {}),
}  # fmt: skip
"""(format, tensors, changes of config.json)"""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"), num_hidden_layers=LAYERS)


@pytest.fixture(scope="module")
def states(target):
    """tokens -> ([layers + 1][n, H], embedding, output head)"""
    model = transformers_target(target)

    @cache
    def hidden_states(tokens):
        with torch.inference_mode():
            return [h[0] for h in model(torch.tensor([tokens]), output_hidden_states=True).hidden_states]

    return hidden_states, model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach()


@pytest.fixture(scope="module")
def expected_drafts(states):
    """(case, HeadConfig, tokens, k) -> the reference's drafts; the same for all kernels and planners."""
    hidden_states, embedding, output_head = states
    known = {}

    def drafts(case, config, tokens, k):
        if (case, tokens, k) not in known:
            hidden = hidden_states(tokens[:-1])  # the last layer's is behind the final norm
            read = torch.cat([hidden[layer] for layer in config.hidden_layers], -1)
            pairs = (read, torch.tensor(tokens[1:]))
            with torch.inference_mode():
                found = draft_greedily(CASES[case][1], config, pairs, k, (embedding, output_head))
            known[case, tokens, k] = tuple(found)
        return known[case, tokens, k]

    return drafts


def assert_drafted_in_every_step(recorder, outcome):
    """But the prompt's, and the last one's where that has a single token left."""
    assert not outcome.metrics.drafter_faults
    assert outcome.metrics.num_steps - len(recorder.drafts) in (1, 2)


def assert_references(recorder, outcome, case, config, expected_drafts):
    assert_drafted_in_every_step(recorder, outcome)
    tokens = (*PROMPT, *outcome.tokens()["r"])
    for (_, count), drafts in recorder.drafts.items():
        assert drafts == expected_drafts(case, config, tokens[:count], len(drafts)), f"after {count} tokens"
        assert len(drafts) == min(K, len(tokens) - count - 1)


def generate(target, head, *, verifies):
    recorder = Recorder(verifies=verifies)
    engine = eagle_engine(target, head, steps=K, planner=recorder, dtype="float32")
    return recorder, run_requests(engine, [toy_request("r", PROMPT, max_tokens=NUM_TOKENS, ignore_eos=True)])


VERIFIED = ("eagle", "eagle3", "eagle3.1", "mtp", "mtp-hidden-first")


@covering(
    each_kernel_set=["torch", "cpu"], indirect=["each_kernel_set"],
    drafted=[*((case, "drafted") for case in CASES), *((case, "verified") for case in VERIFIED)],
)  # fmt: skip
def test_every_draft_of_a_generation_is_the_references(tmp_path, target, expected_drafts, drafted):
    case, how = drafted
    form, head, changes = CASES[case]
    path = write_head(tmp_path / "head", form, head, **changes)
    config = read_head_config(path, toy_target())
    assert_references(*generate(target, path, verifies=how == "verified"), case, config, expected_drafts)


def test_a_target_with_an_mtp_layer_is_its_own_draft_model(tmp_path, expected_drafts):
    path = write_head(tmp_path / "both", *CASES["mtp-inside"][:2])
    config = read_head_config(path, toy_target())
    assert_references(*generate(path, path, verifies=True), "mtp-inside", config, expected_drafts)


@pytest.mark.parametrize("verifies", [False, True])
def test_a_standalone_model_drafts_its_own_continuation(tmp_path, target, verifies):
    draft = write_target(tmp_path / "draft", hidden_size=48, seed=5)
    recorder, outcome = generate(target, draft, verifies=verifies)
    assert_drafted_in_every_step(recorder, outcome)
    tokens, model = (*PROMPT, *outcome.tokens()["r"]), transformers_target(draft)
    for (_, count), drafts in recorder.drafts.items():
        with torch.inference_mode():
            guessed = model(torch.tensor([[*tokens[:count], *drafts]])).logits[0, count - 1 : -1].argmax(-1)
        assert drafts == tuple(guessed.tolist()), f"after {count} tokens"
