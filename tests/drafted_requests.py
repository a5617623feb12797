"""Requests that drafts of untrained weights are partly right about, and that drafts change no answer of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve_workbench.testing.engines import accepted, plain_run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest


def mixed_requests(
    count: int, seed: int = 0, *, preference: float = 9.0, vocab_size: int = TOY_VOCAB
) -> list[GenerateRequest]:
    """`count` varied ones, and some that prefer two tokens so much that random drafts are often right about them."""
    bias = {6: preference, 7: preference - 1.0}
    biased = [
        toy_request(f"b{i}", (5, 6, 6 + i), max_tokens=24, logit_bias=bias, seed=i, temperature=0.4 * i)
        for i in range(4)
    ]
    return [*varied_requests(count, vocab_size=vocab_size, seed=seed), *biased]


def assert_answers_are_plain(engine: Engine, target: Path, requests: Sequence[GenerateRequest], **options: Any) -> None:
    """Tokens and log-probabilities are those of the target without drafts, some of which were accepted and some not.
    `options`: of both engines."""
    drafted = run_requests(engine, requests)
    assert not drafted.metrics.drafter_faults
    assert drafted.decided() == plain_run(target, requests, **options).decided()
    good, count = accepted(drafted)
    assert 0 < good < count
