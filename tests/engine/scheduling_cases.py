"""Long requests for tests of the scheduler, and the tokens that they must give."""

from __future__ import annotations

from msgspec.structs import replace

from specserve_workbench.testing.engines import run
from specserve_workbench.testing.requests import toy_request

BLOCK = 16 * 1024  # bytes of a block of 16 tokens of the toy model
PROMPT = range(1, 21)


def long_request(name, prompt=PROMPT, max_tokens=30, priority=0, **params):
    return replace(toy_request(name, prompt, max_tokens=max_tokens, ignore_eos=True, **params), priority=priority)


def expected_tokens(model, *requests):
    return run(model, requests).tokens()
