"""Assistants of Gemma 4 draft what transformers' own draft over the same keys."""

from __future__ import annotations

import pytest
import torch
from eagle_engines import Recorder, eagle_engine
from toy_assistants import CLUSTERED, Theirs, write_assistant, write_gemma4

from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request

PROMPTS = [tuple((11 * i + 3 * n) % 299 + 1 for i in range(length)) for n, length in enumerate((3, 25, 70))]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_gemma4(tmp_path_factory.mktemp("target") / "target")


@pytest.mark.parametrize("changes", [{}, CLUSTERED], ids=["all logits", "logits of clusters"])
@pytest.mark.parametrize("plugins", [(), ("cpu",)], ids=["torch", "cpu"])
def test_drafts_are_those_of_transformers(target, tmp_path, plugins, changes):
    assistant = write_assistant(tmp_path / "assistant", target, **changes)
    planner, theirs = Recorder(), Theirs(target, assistant)
    engine = eagle_engine(target, assistant, steps=4, planner=planner, beside=plugins, dtype="float32")
    requests = [toy_request(f"r{n}", prompt, max_tokens=40, ignore_eos=True) for n, prompt in enumerate(PROMPTS)]
    tokens = run_requests(engine, requests).tokens()
    assert len(planner.drafts) > 60
    wrong = 0
    for (name, length), draft in planner.drafts.items():
        text = [*PROMPTS[int(name[1:])], *tokens[name]][:length]
        wrong += draft != theirs.draft(text, len(draft))
    assert wrong == 0
