"""Records a step for docs/images/step.svg: `python tools/record_step.py URL PROMPT`, of a server with two drafters.

The step of the answer that accepts most draft tokens, among those whose draft has more than one drafter.
"""

from __future__ import annotations

import json
import secrets
import sys
import urllib.request
from pathlib import Path
from typing import Any

STEP = Path(__file__).resolve().parents[1] / "docs" / "images" / "step.json"


def main(url: str, prompt: str) -> None:
    salt = secrets.token_hex(8)  # nothing that was asked before is among the n-grams
    body = {"prompt": prompt, "max_tokens": 100, "temperature": 0, "return_speculation": True, "cache_salt": salt}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url.rstrip('/')}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answered:
        answer = json.load(answered)
    steps = answer["choices"][0]["speculation"]["steps"]
    mixed = [number for number, step in enumerate(steps) if len({node["drafter"] for node in step["draft"]}) > 1]
    if not mixed:
        raise SystemExit("no step has drafts of two drafters: give another prompt, or enable another drafter")
    chosen = max(mixed, key=lambda number: accepted(steps[number]))
    before = "".join(token["text"] for step in steps[:chosen] for token in step["tokens"])
    record = {"model": answer["model"], "prompt": prompt, "before": before, "step": steps[chosen]}
    STEP.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{STEP}: {accepted(steps[chosen])} accepted draft tokens. `make pages` draws it.")


def accepted(step: dict[str, Any]) -> int:
    return sum(node["accepted"] for node in step["draft"])


if __name__ == "__main__":
    main(*sys.argv[1:])
