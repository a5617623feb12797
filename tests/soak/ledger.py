"""What a run counted, and what went wrong, with all that repeats it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from soak.answers import Answer
    from soak.cases import Case

MOST_SAVED = 8
"""Failures of a kind that are saved and told one by one."""


class Ledger:
    """`requests` by kind of case or by route, `ways` by how a client asked and left; `outcomes` by what became of them;
    `failures` by kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()
        self.failures: Counter[str] = Counter()
        self.told: list[str] = []

    def fail(self, kind: str, message: str, **details: Any) -> None:
        self.failures[kind] += 1
        if self.failures[kind] <= MOST_SAVED:
            file = self.folder / f"failure-{len(self.told)}.json"
            file.write_text(json.dumps({"kind": kind, "message": message, **details}, indent=1, default=repr) + "\n")
            self.told.append(f"FAILED: {kind}: {message} ({file})")

    def compare(self, case: Case, sent: dict[str, Any], got: Answer, allowed: list[Answer], way: str) -> None:
        """An ended answer must be one of `allowed`, a part of one must be a first part of it."""
        fits = any(got.begins(one) and (not got.ended or len(got.choices) == len(one.choices)) for one in allowed)
        unfinished = got.ended and any(choice.finish is None for choice in got.choices.values())
        self.outcomes["answers compared" if got.ended else "parts compared"] += 1
        if not fits or unfinished:
            self.fail(
                "wrong",
                f"{case.name} ({case.kind}, {way}) differs from its reference",
                path=case.path,
                body=sent,
                got=got.plain(),
                expected=[one.plain() for one in allowed],
            )
