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
    whole = [{"lark_grammar": "%llguidance {}\n" + lark}]
    return json.dumps({"grammars": [*whole, *({**only_grammar(text), "name": name} for name, text in parts.items())]})


def only_grammar(text: str) -> dict[str, Any]:
    if not text.lstrip().startswith("{"):
        return {"lark_grammar": text}
    (grammar,) = json.loads(text)["grammars"]
    return dict(grammar)


def behind_reasoning(body: str, reasoning: Reasoning, tokenizer: LLTokenizer) -> str:
    """The body from the end of the reasoning on; without reasoning where the model begins none."""
    begin, end = (mark_of(text, tokenizer) for text in (reasoning.begin, reasoning.end))
    start = f"start: {begin} thought BLANKS @body | @body" if reasoning.begin else "start: thought BLANKS @body"
    rules = (start, text_up_to("thought", end), free_text([end]), r"BLANKS: /[ \n]{0,8}/")
    return composed("\n".join(rules), body=body)
