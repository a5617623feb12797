"""What the demo model answers, alone, in company and with drafts. Runs under emulation and beside it.

Run: `python generate.py portable`; without names, on all that the processor has. A JSON object by set and run.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from specserve.text.tokenizer import HfTokenizer
from specserve.types import GenerateRequest, SamplingParams
from specserve_cpu import _native
from specserve_demo import MODEL_DIR
from specserve_workbench.testing.engines import accepted, make_engine, run_requests, verify_everything

TOKENS = 12
PROMPTS = {
    "greedy": ("for number in numbers:\n    total += number\nfor number in numbers:", {"temperature": 0.0}),
    "seeded": ("def mean(values):\n    return sum(values) / len(values)\n\n\ndef", {"temperature": 0.8, "seed": 5}),
}
DRAFTERS: dict[str, dict[str, Any]] = {
    "ngram": {},
    "eagle": {"eagle": {"model": "demo-eagle3"}},
}


def requests() -> list[GenerateRequest]:
    tokenizer = HfTokenizer.from_dir(MODEL_DIR)
    return [
        GenerateRequest(
            request_id=name,
            prompt_token_ids=tuple(tokenizer.encode(prompt)),
            params=SamplingParams(max_tokens=TOKENS, logprobs=1, **params),
        )
        for name, (prompt, params) in PROMPTS.items()
    ]


def answers(instruction_set: str) -> dict[str, Any]:
    """Tokens and log-probabilities by run and request: alone, together, and together with each drafter's drafts."""
    asked: list[GenerateRequest] = requests()
    given: dict[str, Any] = {}
    of_cpu = {"instruction_set": instruction_set}
    plain = make_engine("demo", plugins=("cpu",), plugin_options={"cpu": of_cpu}, prefix_cache=False).engine
    given["alone"] = {}
    for request in asked:
        given["alone"] |= run_requests(plain, [request]).decided()
    given["together"] = run_requests(plain, asked).decided()
    for drafter, options in DRAFTERS.items():
        made = make_engine("demo", plugins=("cpu", drafter), plugin_options={"cpu": of_cpu, **options})
        run = run_requests(verify_everything(made.engine, 6), asked)
        assert not run.metrics.drafter_faults, run.metrics.drafter_faults
        given[drafter], given[f"accepted of {drafter}"] = run.decided(), accepted(run)[0]
    return given


if __name__ == "__main__":
    sets = sys.argv[1:] or _native.instruction_sets()
    print(msgspec.json.encode({name: answers(name) for name in sets}).decode())
