"""Assistants of Gemma 4 draft what transformers' own draft over the same keys, and what they draft is accepted."""

from __future__ import annotations

import pytest
import torch
from eagle_engines import Recorder, drafter_of, eagle_engine
from safetensors.torch import load_file, save_file
from toy_assistants import CLUSTERED, FULL, SLIDING, WEIGHTS, Theirs, change_assistant, write_assistant, write_gemma4

from specserve_workbench.testing.engines import accepted, run_requests
from specserve_workbench.testing.requests import toy_request

PROMPTS = [tuple((11 * i + 3 * n) % 299 + 1 for i in range(length)) for n, length in enumerate((3, 70))]
TARGETS = {
    "keys that are shared": {},
    "keys of every layer": {"num_kv_shared_layers": 0, "layer_types": [FULL, SLIDING, FULL, SLIDING, FULL]},
    "values that are keys": {"attention_k_eq_v": True, "num_global_key_value_heads": 1},
}
STEPS = 4


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_gemma4(tmp_path_factory.mktemp("target") / "target")


def served(target, assistant, beside=(), max_tokens=24):
    """What was drafted, by text, and the states and logits of each pass; the tokens of each request, and the counts of
    accepted and drafted tokens."""
    planner, passes = Recorder(), {}
    engine = eagle_engine(target, assistant, steps=STEPS, planner=planner, beside=beside, dtype="float32")
    made = drafter_of(engine).passes
    step, logits_of, logits = made.step, made.logits, []

    def watched(rows, hidden, count):
        result = step(rows, hidden, count)
        for row, hidden_after, scores in zip(rows, result.hidden, logits[-1], strict=True):
            passes[row.request.id, len(row.request.tokens), row.path] = scores, hidden_after
        return result

    made.step, made.logits = watched, lambda x: logits.append(logits_of(x)) or logits[-1]
    requests = [toy_request(f"{n}", prompt, max_tokens=max_tokens, ignore_eos=True) for n, prompt in enumerate(PROMPTS)]
    run = run_requests(engine, requests)
    assert not run.metrics.drafter_faults
    texts = [[*prompt, *run.tokens()[str(n)]] for n, prompt in enumerate(PROMPTS)]
    return (
        {(int(name), length): draft for (name, length), draft in planner.drafts.items()},
        passes,
        texts,
        accepted(run),
    )


@pytest.mark.parametrize("kind", TARGETS)
def test_every_pass_of_a_draft_is_that_of_transformers(tmp_path, kind):
    """Windows of 40, prompts of 3 and 70. Tokens, logits and the hidden states that are handed on."""
    target = write_gemma4(tmp_path / "target", **TARGETS[kind])
    inner = {"attention_k_eq_v": True, "num_global_key_value_heads": 1} if "values" in kind else {}
    assistant = write_assistant(tmp_path / "assistant", target, inner=inner)
    theirs = Theirs(target, assistant)
    drafts, passes, texts, _ = served(target, assistant)
    assert len(drafts) > 30
    for (n, length), draft in drafts.items():
        steps = theirs.steps(texts[n][:length], len(draft))
        for depth, (logits, hidden) in enumerate(steps):
            ours = passes[str(n), length, draft[:depth]]
            torch.testing.assert_close(ours[0], logits, atol=2e-4, rtol=1e-4)
            torch.testing.assert_close(ours[1], hidden, atol=2e-4, rtol=1e-4)
        assert draft == tuple(int(logits.argmax()) for logits, _ in steps)


@pytest.mark.parametrize("beside", [(), ("cpu",)], ids=["torch", "cpu"])
def test_logits_of_clusters_are_those_of_transformers(target, tmp_path, beside):
    assistant = write_assistant(tmp_path / "assistant", target, **CLUSTERED)
    theirs = Theirs(target, assistant)
    drafts, passes, texts, _ = served(target, assistant, beside)
    assert len(drafts) > 30
    for (n, length), draft in drafts.items():
        assert draft == theirs.draft(texts[n][:length], len(draft))
    (n, length), draft = next(iter(drafts.items()))
    ((logits, _),) = theirs.steps(texts[n][:length], 1)
    torch.testing.assert_close(passes[str(n), length, ()][0], logits, atol=2e-4, rtol=1e-4)
    assert int((logits == logits.min()).sum()) == 320 - 3 * 32, "the other clusters"


def make_right(target, assistant):
    """The next token of the target follows from the last one, but for a little; the assistant has its head."""
    tensors = load_file(target / WEIGHTS)
    for name in tensors:
        if name.endswith(("attention_layernorm.weight", "feedforward_layernorm.weight", "input_norm.weight")):
            tensors[name] *= 1.0 if "pre_" in name else 0.1
    save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
    own = load_file(assistant / WEIGHTS)
    small = {name: 0.1 * own[name] for name in own if "post_" in name and name.endswith("layernorm.weight")}
    small |= {name: torch.ones(1) for name in own if name.endswith("layer_scalar")}
    size = tensors["model.norm.weight"].shape[0]
    change_assistant(
        assistant,
        **small,
        **{"pre_projection.weight": torch.cat([torch.eye(size), torch.zeros(size, size)], 1)},
        **{"model.norm.weight": tensors["model.norm.weight"], "model.embed_tokens.weight": tensors["lm_head.weight"]},
    )


def plain_loop(theirs, prompt, text):
    """Accepted and drafted tokens of a greedy loop over the text that comes out."""
    good = count = 0
    length = len(prompt) + 1
    while length < len(text):
        draft = theirs.draft(text[:length], min(STEPS, len(text) - length - 1))
        right = next((i for i, token in enumerate(draft) if token != text[length + i]), len(draft))
        good, count, length = good + right, count + len(draft), length + right + 1
    return good, count


def test_as_much_is_accepted_as_by_a_plain_loop_and_more_of_an_assistant_that_is_right(tmp_path):
    target = write_gemma4(tmp_path / "target", tie_word_embeddings=False)
    good = write_assistant(tmp_path / "good", target, inner={"hidden_size": 128})
    make_right(target, good)
    random = write_assistant(tmp_path / "random", target)
    counts = {}
    for assistant in (good, random):
        theirs = Theirs(target, assistant)
        _, _, texts, counts[assistant.name] = served(target, assistant, max_tokens=40)
        assert [theirs.greedy(prompt, 40) for prompt in PROMPTS] == [
            text[len(prompt) :] for text, prompt in zip(texts, PROMPTS, strict=True)
        ]
        loops = [plain_loop(theirs, prompt, text) for prompt, text in zip(PROMPTS, texts, strict=True)]
        assert counts[assistant.name] == tuple(map(sum, zip(*loops, strict=True)))
    assert counts["good"][0] > 0.7 * counts["good"][1]
    assert counts["random"][0] < 0.2 * counts["random"][1]


def test_nothing_is_kept_of_a_step_whose_draft_is_made_or_has_failed(target, tmp_path, monkeypatch):
    """Requests may end in the next one, and a plan of their keys is valid in one step alone."""
    engine = eagle_engine(target, write_assistant(tmp_path, target), steps=STEPS, dtype="float32")
    passes, planned = drafter_of(engine).passes, []
    plan = passes.reader.plan
    monkeypatch.setattr(passes.reader, "plan", lambda requests: planned.append(requests) or plan(requests))
    run_requests(engine, [toy_request("made", PROMPTS[0], max_tokens=4, ignore_eos=True)])
    assert planned
    assert passes.queries is None
    monkeypatch.setattr(passes, "logits", lambda x: 1 / 0)
    run = run_requests(engine, [toy_request("failed", PROMPTS[0], max_tokens=4, ignore_eos=True)])
    assert run.metrics.drafter_faults
    assert passes.queries is None
