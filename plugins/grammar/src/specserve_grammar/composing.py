"""Grammars of other grammars: one in Lark that names its parts as `@name`, each of its own kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from specserve_grammar.marks import free_text, mark_of, text_up_to

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from specserve.api import Reasoning


def composed(lark: str, **parts: str) -> str:
    """`parts`: grammars as the library writes them, JSON or Lark."""
    whole: list[dict[str, Any]] = [{"lark_grammar": "%llguidance {}\n" + lark}]
    for name, text in parts.items():
        first, *others = grammars_of(text)
        whole += [{**first, "name": name}, *others]
    return json.dumps({"grammars": whole})


def grammars_of(text: str) -> list[dict[str, Any]]:
    """The first is that of the whole text; it may name the others."""
    if not text.lstrip().startswith("{"):
        return [{"lark_grammar": text}]
    found: list[dict[str, Any]] = json.loads(text)["grammars"]
    return found


def behind_reasoning(body: str, reasoning: Reasoning, tokenizer: LLTokenizer) -> str:
    """The body from the end of the reasoning on; without reasoning where the model begins none."""
    end = mark_of(reasoning.end, tokenizer)
    behind = f"BLANKS {optional(reasoning.answer, tokenizer)}@body"
    rules = [text_up_to("thought", end), free_text([end]), r"BLANKS: /[ \n]{0,8}/"]
    if not reasoning.begin:
        return composed("\n".join([f"start: thought {behind}", *rules]), body=body)
    direct = f"{optional(reasoning.answer, tokenizer)}@body"
    begins = " | ".join(f"{mark_of(begin, tokenizer)} thought" for begin in (reasoning.begin, *reasoning.others))
    times = "+" if reasoning.others else ""
    start = f"start: ({begins}){times} {behind} | {direct}"
    return composed("\n".join([start, *rules]), body=body)


def optional(mark: str, tokenizer: LLTokenizer) -> str:
    return f"({mark_of(mark, tokenizer)})? " if mark else ""
