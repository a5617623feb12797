"""The models that have a draft head, each with texts of several kinds for it."""

from __future__ import annotations

import runpy
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.lib.workload import ROOT, docs_prompts, edit_prompt, held_out_prompts

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.protocols import Tokenizer

    Texts = Callable[[Tokenizer, int], list[tuple[int, ...]]]
    """`count` prompts, or as many as there are."""

EDIT = "edit"
TEXT_LEN = 400


class Subject(NamedTuple):
    title: str
    model: str
    eagle: dict[str, Any]
    """Options of the plugin eagle: its draft head."""
    texts: dict[str, Texts]


@cache
def demo_names(script: str) -> dict[str, Any]:
    """What a script of demo/ defines."""
    return runpy.run_path(str(ROOT / "demo" / script))


def files(tokenizer: Tokenizer, count: int) -> list[tuple[int, ...]]:
    return held_out_prompts(tokenizer, count, TEXT_LEN)


def prose(tokenizer: Tokenizer, count: int) -> list[tuple[int, ...]]:
    return docs_prompts(tokenizer, count, TEXT_LEN)


def edits(tokenizer: Tokenizer, count: int) -> list[tuple[int, ...]]:
    return [edit_prompt(tokenizer, file) for file in files(tokenizer, count)]


def chats(tokenizer: Tokenizer, count: int) -> list[tuple[int, ...]]:
    """Questions that the head was not trained on."""
    questions: str = demo_names("chat_topics.py")["HELD_OUT"]
    return [asked(tokenizer, question) for question in questions.strip().splitlines()][:count]


def summaries(tokenizer: Tokenizer, count: int) -> list[tuple[int, ...]]:
    pages = docs_prompts(tokenizer, count, TEXT_LEN)
    return [asked(tokenizer, f"Summarize this text:\n\n{tokenizer.decode(list(page))}") for page in pages]


def asked(tokenizer: Tokenizer, question: str) -> tuple[int, ...]:
    prompt: str = demo_names("demo_requests.py")["asked"](question)
    return tuple(tokenizer.encode(prompt))


SUBJECTS = {
    "demo": Subject("demo model", "demo", {"model": "demo-eagle3"}, {EDIT: edits, "code": files, "prose": prose}),
    "smollm2": Subject(
        "SmolLM2-135M",
        "build/smollm2",
        {"model": "smollm2-eagle3", "topk": 3, "draft_tokens": 8, "weights": "int8"},
        {EDIT: edits, "chat": chats, "summary": summaries},
    ),
}
"""By the name on the command line."""
