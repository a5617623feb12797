"""Compiled grammars: matchers at their start, kept by what was asked for.

Owns the library's form of the tokenizer, its limits and the cache. Safe to call from any thread: grammars are compiled
in the thread that prepares their request, before the engine takes it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from specserve.api import ConfigError, RequestError
from specserve_grammar.errors import refuse
from specserve_grammar.marks import mark_of
from specserve_grammar.reasons import reason_in_words, unenforced
from specserve_grammar.sources import grammar_text
from specserve_grammar.structural_tags import read_tag, schemas_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from specserve.api import StructuredOutput
    from specserve_grammar.options import GrammarOptions
    from specserve_grammar.validator import Validator

LIMITS = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=50_000,
    max_grammar_size=200_000,
    precompute_large_lexemes=True,
    verbose_errors=False,
)
"""About 20 ms to begin a grammar, and 15 ms for a token at the very most."""
SILENT = 0


class Compiled(NamedTuple):
    matcher: LLMatcher
    """At the start."""
    unenforced: Mapping[str, Sequence[str]]
    """By part, `uniqueItems at /uniqueItems`; the only part of a schema is "". None where all is enforced."""


class Grammars:
    """One per engine. `validator`: of answers to schemas that are not enforced; None where none is asked for."""

    def __init__(self, tokenizer: LLTokenizer, options: GrammarOptions, validator: Validator | None = None) -> None:
        self.tokenizer, self.options, self.validator = tokenizer, options, validator
        self.compiled: OrderedDict[StructuredOutput, Compiled] = OrderedDict()
        """By what was asked for, whatever the client called it."""
        self.lock = Lock()

    def matcher(self, wanted: StructuredOutput) -> LLMatcher:
        """At the start of the text. Raises RequestError where the grammar is refused."""
        compiled = self.find(wanted)
        with self.lock:
            return compiled.matcher.deep_copy()

    def recompiled(self, wanted: StructuredOutput) -> LLMatcher:
        """At the start of the text, sharing nothing with the matchers of before."""
        with self.lock:
            self.compiled.pop(key_of(wanted), None)
        return self.matcher(wanted)

    def find(self, wanted: StructuredOutput) -> Compiled:
        """Compile it unless it is compiled. Raises RequestError."""
        key = key_of(wanted)
        with self.lock:
            found = self.compiled.get(key)
            if found is not None:
                self.compiled.move_to_end(key)
                return found
        compiled = self.compile(wanted)
        with self.lock:
            self.compiled[key] = compiled
            while len(self.compiled) > self.options.cache_size:
                self.compiled.popitem(last=False)
        return compiled

    def compile(self, wanted: StructuredOutput) -> Compiled:
        left_out = self.check_parts(wanted) if wanted.kind == "structural_tag" else {}
        text = grammar_text(wanted, self.options, self.tokenizer)
        matcher = LLMatcher(self.tokenizer, text, log_level=SILENT, limits=LIMITS)
        if matcher.is_error():
            reason = first_line(matcher.get_error())
            words = reason_in_words(reason, schema_of(wanted))
            refuse(wanted.param, f"the {wanted.kind} cannot be served: {words}")
        if wanted.kind == "json_schema" and self.options.unsupported == "validate":
            places = unenforced(matcher.get_grammar_warnings(), json.loads(wanted.text))
            if places:
                self.check_validation(wanted)
                left_out = {"": places}
        return Compiled(matcher, left_out)

    def check_parts(self, wanted: StructuredOutput) -> dict[str, Sequence[str]]:
        """Each schema alone, so that a message names its part; what of them is not enforced. Raises RequestError."""
        left_out: dict[str, Sequence[str]] = {}
        if len(wanted.text.encode(errors="replace")) > self.options.max_bytes:
            return left_out
        for name, schema in schemas_of(read_tag(wanted)):
            part = msgspec.structs.replace(wanted, kind="json_schema", text=schema, reasoning=None)
            try:
                if places := self.compile(part).unenforced.get(""):
                    left_out[name] = [*left_out.get(name, ()), *places]
            except RequestError as error:
                reason = str(error).removeprefix(f"{wanted.param}: ")
                raise RequestError(f"{wanted.param}: {name}: {reason}", param=wanted.param) from None
        return left_out

    def is_special(self, text: str) -> bool:
        """Is it a special token of the model?"""
        return mark_of(text, self.tokenizer).startswith("<")

    def check_validation(self, wanted: StructuredOutput) -> None:
        """Raises RequestError for a schema by which nothing can be validated."""
        assert self.validator is not None
        try:
            self.validator.check_schema(wanted.text)
        except ValueError as error:
            refuse(wanted.param, f"the schema is not enforced, and answers cannot be validated by it: {error}")


def key_of(wanted: StructuredOutput) -> StructuredOutput:
    return msgspec.structs.replace(wanted, param="")


def schema_of(wanted: StructuredOutput) -> object:
    """None where it is none. It was read before: it is valid."""
    return json.loads(wanted.text) if wanted.kind == "json_schema" else None


def first_line(error: str) -> str:
    """Without the library's traces."""
    return error.split("<backtrace>")[0].split("<state>")[0].strip().split("\n\n")[0]


def load_tokenizer(model: Path, vocab_size: int, eos_token_ids: tuple[int, ...]) -> LLTokenizer:
    """Raises ConfigError for a tokenizer that the library does not read, and a model without an end of text."""
    if not eos_token_ids:
        raise ConfigError(
            f"grammar needs a model with an end-of-text token, to end a text that is complete; {model} names none. "
            "Add eos_token_id to its generation_config.json, or remove --plugin grammar."
        )
    try:
        return LLTokenizer(str(model / "tokenizer.json"), n_vocab=vocab_size, eos_token=list(eos_token_ids))
    except Exception as error:  # the library raises plain ones
        raise ConfigError(
            f"grammar cannot read the tokenizer of {model}: {error}. It reads byte-level BPE and byte fallback; "
            "remove --plugin grammar for this model."
        ) from error
