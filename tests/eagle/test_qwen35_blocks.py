"""The block that drafts within a Qwen3.5 checkpoint, against plain torch over transformers' hidden states."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
from eagle_engines import Recorder, drafter_of, eagle_engine, transformers_target
from qwen35_blocks import Reference, write_reading_target, write_saved_target, write_target
from torch.nn.functional import cross_entropy

from specserve_workbench.testing.engines import accepted, run, run_requests
from specserve_workbench.testing.requests import toy_request

K, NUM_TOKENS, PROMPT = 4, 24, tuple(range(3, 120, 9))


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("model") / "target")


@pytest.fixture(scope="module")
def hidden_of(target):
    return hidden_states_of(target)


def hidden_states_of(path):
    """tokens -> [N, H], behind the final norm."""
    model = transformers_target(path)

    def hidden(tokens):
        with torch.inference_mode():
            return model(torch.tensor([tokens]), output_hidden_states=True).hidden_states[-1][0]

    return hidden


class Listening:
    """What the passes of the drafter give for one request: by the number of committed tokens, own hidden states and
    logits of each draft token."""

    def __init__(self, engine):
        self.passes = drafter_of(engine).passes
        self.choose, self.passes.choose = self.passes.choose, self.listen
        self.own, self.logits = defaultdict(list), defaultdict(list)

    def listen(self, x, batch, rows, count):
        if rows:
            number = len(rows[0].request.tokens)
            self.own[number] += self.passes.own(x[: batch.num_rows], batch).clone()
            self.logits[number] += self.passes.passes.logits(x, batch).clone()
        return self.choose(x, batch, rows, count)


def generate(target, *, verifies=True, **options):
    recorder = Recorder(verifies=verifies)
    engine = eagle_engine(target, target, steps=K, planner=recorder, **options)
    heard = Listening(engine)
    outcome = run_requests(engine, [toy_request("r", PROMPT, max_tokens=NUM_TOKENS, ignore_eos=True)])
    assert not outcome.metrics.drafter_faults
    return recorder, heard, (*PROMPT, *outcome.tokens()["r"])


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("verifies", [False, True])
def test_every_draft_is_the_chain_of_the_reference(target, hidden_of, verifies):
    assert_references(target, hidden_of, verifies=verifies)


def assert_references(target, hidden_of, **options):
    recorder, heard, tokens = generate(target, dtype="float32", **options)
    reference = Reference(target)
    assert len(recorder.drafts) > NUM_TOKENS // 2
    for (_, count), drafts in recorder.drafts.items():
        expected, states, scored = reference.chain(hidden_of(tokens[: count - 1]), tokens[:count], len(drafts))
        assert drafts == tuple(expected), f"after {count} tokens"
        torch.testing.assert_close(heard.own[count][: len(drafts)], states, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(heard.logits[count][: len(drafts)], scored, rtol=1e-5, atol=1e-5)


def test_a_block_that_is_added_to_what_transformers_saved_drafts(tmp_path):
    path = write_saved_target(tmp_path / "saved")
    assert_references(path, hidden_states_of(path))


def test_the_text_part_of_a_target_that_reads_images_has_the_same_block(tmp_path, target, caplog):
    recorder, _, tokens = generate(target)
    reading = write_reading_target(tmp_path / "reading", target)
    others, _, same = generate(reading)
    assert (others.drafts, same) == (recorder.drafts, tokens)
    assert "image input is not. Tensors that are not read: 1 of visual" in caplog.text
    assert "mtp" not in caplog.text


def trained(target, hidden_of, sequences, steps=60):
    """The block's tensors, trained on the next tokens of these sequences."""
    reference = Reference(target)
    weights = {name: tensor.clone().requires_grad_() for name, tensor in reference.weights.items()}
    reference.weights = weights
    optimiser = torch.optim.Adam(weights.values(), lr=3e-3)
    inputs = [(hidden_of(tokens[:-2]).clone(), torch.tensor(tokens[1:])) for tokens in sequences]
    for _ in range(steps):
        losses = [cross_entropy(reference(hidden, read[:-1])[1], read[1:]) for hidden, read in inputs]
        optimiser.zero_grad()
        torch.stack(losses).mean().backward()
        optimiser.step()
    return {name: tensor.detach() for name, tensor in weights.items()}


def counted(reference, hidden_of, tokens, begin):
    """(draft tokens, accepted ones) of a generation of `tokens[begin:]`, whose first token the prompt gave."""
    drafted, good, count = 0, 0, begin + 1
    while count < len(tokens):
        wanted = min(K, len(tokens) - count - 1)
        chain, _, _ = reference.chain(hidden_of(tokens[: count - 1]), tokens[:count], wanted)
        right = next((i for i, token in enumerate(chain) if token != tokens[count + i]), wanted)
        drafted, good, count = drafted + wanted, good + right, count + right + 1
    return drafted, good


def test_as_many_tokens_of_a_trained_block_are_accepted_as_the_reference_says(tmp_path, target, hidden_of):
    requests = [toy_request(f"{i}", PROMPT[i:], max_tokens=NUM_TOKENS, ignore_eos=True) for i in range(4)]
    plain = run(target, requests, dtype="float32").tokens()
    sequences = [(*PROMPT[i:], *plain[f"{i}"]) for i in range(4)]
    path = write_target(tmp_path / "trained", trained(target, hidden_of, sequences))
    outcome = run_requests(eagle_engine(path, path, steps=K, dtype="float32"), requests)
    assert outcome.tokens() == plain
    reference = Reference(path)
    counts = [counted(reference, hidden_of, tokens, len(PROMPT) - i) for i, tokens in enumerate(sequences)]
    drafted, good = (sum(each) for each in zip(*counts, strict=True))
    assert good > 0.4 * drafted
    assert accepted(outcome) == (good, drafted)
