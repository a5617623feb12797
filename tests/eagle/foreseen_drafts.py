"""What a trained head's chain of one token is accepted, followed by hand from the logits of training, and by an
engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from training_cases import make_trainer

from specserve_eagle.training.evaluate import layers_read, step_logits
from specserve_eagle.training.export import export
from specserve_eagle.training.reopen import reopen
from specserve_workbench.testing.engines import accepted, make_engine, run_requests
from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from pathlib import Path

    from specserve_eagle.training.target import Target

PROMPT, NUM_TOKENS, LESSONS = 9, 40, 30


class Count(NamedTuple):
    accepted: int
    drafted: int


class Foreseen(NamedTuple):
    expected: Count
    accepted: Count


def foreseen(kind: str, target: Target, folder: Path, options: dict[str, Any]) -> Foreseen:
    """Of a head that has learned a little of what the target writes. The engine's text is that without drafts.
    options: of the engine."""
    request = toy_request("a", range(3, 3 + PROMPT), max_tokens=NUM_TOKENS, ignore_eos=True)
    text = run_requests(make_engine(target.files.path, **options).engine, [request]).tokens()["a"]
    ids = torch.tensor([[*range(3, 3 + PROMPT), *text]])
    whole = {"draft_vocab": target.config.vocab_size} if kind == "eagle3" else {}
    trainer, _ = make_trainer(kind, target, folder, **whole)
    for _ in range(LESSONS):
        trainer.step(ids, 3.0)
    export(trainer.module, target.files, folder)
    drafts = dict(options, plugins=(*options.get("plugins", ()), "eagle"), draft_tokens=1)
    drafts["plugin_options"] = options.get("plugin_options", {}) | {"eagle": {"model": str(folder), "steps": 1}}
    outcome = run_requests(make_engine(target.files.path, **drafts).engine, [request])
    assert outcome.tokens()["a"] == text
    return Foreseen(followed(target, folder, ids), Count(*accepted(outcome)))


@torch.no_grad()
def followed(target: Target, folder: Path, ids: torch.Tensor) -> Count:
    """ids: [1, T], the prompt and the text."""
    head = reopen(folder, target)
    logits = next(step_logits(head, target, target.features(ids, layers_read(head)), ids, 1))[0]
    right = (logits.argmax(-1) == ids[0, 2 : 2 + len(logits)]).tolist()
    known, drafted, good = PROMPT + 1, 0, 0
    while PROMPT + NUM_TOKENS - known > 1:
        drafted, good = drafted + 1, good + right[known - 2]
        known += 1 + right[known - 2]
    return Count(good, drafted)
