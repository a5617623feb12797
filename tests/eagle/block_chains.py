"""Drafts of a block within its target's checkpoint, beside the chains of plain torch over transformers' hidden states.

A reference is a function from hidden states [N, H] and the tokens behind them [N] to own hidden states [N, H] and
logits [N, V], with its tensors in `weights`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Protocol

import torch
from eagle_engines import Recorder, drafter_of, eagle_engine, transformers_target
from torch.nn.functional import cross_entropy

from specserve_draft_models.head_pass import PiecewisePass
from specserve_workbench.testing.engines import accepted, run, run_requests
from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

K, NUM_TOKENS, PROMPT = 4, 24, tuple(range(3, 120, 9))


class Reference(Protocol):
    weights: dict[str, Tensor]

    def __call__(self, hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]: ...


def chain(
    reference: Reference, hidden: Tensor, tokens: Sequence[int], count: int
) -> tuple[list[int], list[Tensor], list[Tensor]]:
    """Draft tokens one by one, with the own hidden state [H] and the logits [V] of each. hidden: [N, H] of all
    `tokens` but the last."""
    states, read = hidden, torch.tensor(tokens[1:])
    own_states: list[Tensor] = []
    scored: list[Tensor] = []
    for _ in range(count):
        own, logits = reference(states, read)
        own_states.append(own[-1])
        scored.append(logits[-1])
        states, read = torch.cat((states, own[-1:])), torch.cat((read, logits[-1].argmax()[None]))
    return read[len(tokens) - 1 :].tolist(), own_states, scored


def hidden_states_of(path: Path) -> Callable[[Sequence[int]], Tensor]:
    """tokens -> [N, H], behind the final norm."""
    model = transformers_target(path)

    def hidden(tokens: Sequence[int]) -> Tensor:
        with torch.inference_mode():
            states: Tensor = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states[-1][0]
            return states

    return hidden


class Listening:
    """What the passes of the drafter give for one request: by the number of committed tokens, own hidden states and
    logits of each draft token. Nothing is heard of passes that are one native call."""

    def __init__(self, engine: Any) -> None:
        self.passes = drafter_of(engine).passes
        if isinstance(self.passes, PiecewisePass):
            self.choose, self.passes.choose = self.passes.choose, self.listen
        self.own: dict[int, list[Tensor]] = defaultdict(list)
        self.logits: dict[int, list[Tensor]] = defaultdict(list)

    def listen(self, x: Tensor, batch: Any, rows: Any, count: int) -> Any:
        if rows:
            number = len(rows[0].request.tokens)
            self.own[number] += self.passes.own(x[: batch.num_rows], batch).clone()
            self.logits[number] += self.passes.passes.logits(x, batch).clone()
        return self.choose(x, batch, rows, count)


def generate(target: Path, *, verifies: bool = True, **options: Any) -> tuple[Recorder, Listening, tuple[int, ...]]:
    recorder = Recorder(verifies=verifies)
    engine = eagle_engine(target, target, steps=K, planner=recorder, **options)
    heard = Listening(engine)
    outcome = run_requests(engine, [toy_request("r", PROMPT, max_tokens=NUM_TOKENS, ignore_eos=True)])
    assert not outcome.metrics.drafter_faults
    return recorder, heard, (*PROMPT, *outcome.tokens()["r"])


def assert_references(
    target: Path, reference: Reference, hidden_of: Callable[[Sequence[int]], Tensor], atol: float = 4e-5, **options: Any
) -> None:
    """Every draft token, own hidden state and logit is the reference's."""
    recorder, heard, tokens = generate(target, dtype="float32", **options)
    assert len(recorder.drafts) > NUM_TOKENS // 2
    hidden, close = hidden_of(tokens), {"rtol": 1e-5, "atol": atol}
    for (_, count), drafts in recorder.drafts.items():
        expected, states, scored = chain(reference, hidden[: count - 1], tokens[:count], len(drafts))
        assert drafts == tuple(expected), f"after {count} tokens"
        if not isinstance(heard.passes, PiecewisePass):
            continue
        torch.testing.assert_close(heard.own[count][: len(drafts)], states, **close)
        torch.testing.assert_close(heard.logits[count][: len(drafts)], scored, **close)


def train(
    reference: Reference,
    hidden_of: Callable[[Sequence[int]], Tensor],
    sequences: Sequence[Sequence[int]],
    steps: int = 60,
) -> dict[str, Tensor]:
    """Its tensors, trained on the next tokens of these sequences, which it has from now on."""
    weights = {name: tensor.clone().requires_grad_() for name, tensor in reference.weights.items()}
    reference.weights = weights
    optimiser = torch.optim.Adam(weights.values(), lr=3e-3)
    inputs = [(hidden_of(tokens[:-2]).clone(), torch.tensor(tokens[1:])) for tokens in sequences]
    for _ in range(steps):
        losses = [cross_entropy(reference(hidden, read[:-1])[1], read[1:]) for hidden, read in inputs]
        optimiser.zero_grad()
        torch.stack(losses).mean().backward()
        optimiser.step()
    reference.weights = {name: tensor.detach() for name, tensor in weights.items()}
    return reference.weights


def counted(
    reference: Reference, hidden_of: Callable[[Sequence[int]], Tensor], tokens: Sequence[int], begin: int
) -> tuple[int, int]:
    """(draft tokens, accepted ones) of a generation of `tokens[begin:]`, whose first token the prompt gave."""
    drafted, good, count, hidden = 0, 0, begin + 1, hidden_of(tokens)
    while count < len(tokens):
        wanted = min(K, len(tokens) - count - 1)
        drafts, _, _ = chain(reference, hidden[: count - 1], tokens[:count], wanted)
        right = next((i for i, token in enumerate(drafts) if token != tokens[count + i]), wanted)
        drafted, good, count = drafted + wanted, good + right, count + right + 1
    return drafted, good


def assert_acceptance_of_a_trained_block(
    target: Path,
    reference: Reference,
    hidden_of: Callable[[Sequence[int]], Tensor],
    write: Callable[[dict[str, Tensor]], Path],
    plugins: Sequence[str] = (),
) -> None:
    """write: a copy of the target with these tensors; plugins: of the engines. As many tokens are accepted as the
    reference says."""
    requests = [toy_request(f"{i}", PROMPT[i:], max_tokens=NUM_TOKENS, ignore_eos=True) for i in range(4)]
    plain = run(target, requests, plugins=tuple(plugins), dtype="float32").tokens()
    sequences = [(*PROMPT[i:], *plain[f"{i}"]) for i in range(4)]
    path = write(train(reference, hidden_of, sequences))
    outcome = run_requests(eagle_engine(path, path, steps=K, beside=plugins, dtype="float32"), requests)
    assert outcome.tokens() == plain
    counts = [counted(reference, hidden_of, tokens, len(PROMPT) - i) for i, tokens in enumerate(sequences)]
    drafted, good = (sum(each) for each in zip(*counts, strict=True))
    assert good > 0.4 * drafted
    assert accepted(outcome) == (good, drafted)
