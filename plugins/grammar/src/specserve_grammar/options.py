"""The options of grammar, and their ranges."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specserve.api import ConfigError


class GrammarOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`--set grammar.whitespace=flexible`"""

    whitespace: Literal["fixed", "flexible"] = "fixed"
    """In JSON: one blank behind each comma and colon, or any, as the model likes. Where it is fixed, it is drafted."""
    closed_objects: bool = True
    """An object whose schema names properties and says nothing about others has no others."""
    unsupported: Literal["refuse", "validate", "ignore"] = "refuse"
    """A schema with keywords that are not enforced, such as uniqueItems: refuse it, serve it and say whether the answer
    keeps them, or serve it without them."""
    forced_drafts: bool = True
    """Draft the text about which the grammar leaves no choice."""
    max_draft_tokens: Annotated[int, Meta(ge=1, le=256)] = 32
    """Of forced text, in one step."""
    max_bytes: Annotated[int, Meta(ge=64, le=16 * 2**20)] = 64 * 2**10
    """Of a schema or a grammar."""
    max_depth: Annotated[int, Meta(ge=1, le=512)] = 64
    """Of nesting in a schema."""
    max_choices: Annotated[int, Meta(ge=1, le=100_000)] = 4096
    """Texts of a choice."""
    cache_size: Annotated[int, Meta(ge=1, le=100_000)] = 256
    """Compiled grammars that are kept; one that is used again need not be compiled again."""

    def __post_init__(self) -> None:
        if self.unsupported == "validate" and find_spec("jsonschema_rs") is None:
            raise ConfigError(
                "grammar.unsupported = 'validate' needs the package jsonschema-rs, which is not installed. Install it "
                "with pip install 'specserve-plugin-grammar[validate]', or leave the option out."
            )
