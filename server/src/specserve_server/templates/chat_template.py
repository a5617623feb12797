"""Chat templates: from messages to the text of a prompt, in a sandbox.

Templates come from the model directory only, never from a request; the sandbox forbids what a hostile one would try.
Knows nothing about token ids.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specserve.errors import ModelError, RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Environment
    from jinja2.parser import Parser

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


class TemplateRefusedError(jinja2.TemplateError):
    """`raise_exception` of a template."""


class ChatTemplate:
    """One compiled template with the special tokens that it may write."""

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        self.source = source
        try:
            self._template = ENVIRONMENT.from_string(source)
            parsed = ENVIRONMENT.parse(source)
            self.variables = frozenset(meta.find_undeclared_variables(parsed))
            """Names that it reads and does not set itself."""
        except jinja2.TemplateError as error:
            line = f"line {error.lineno}: " if isinstance(error, jinja2.TemplateSyntaxError) else ""
            text = str(error).rstrip(".")
            raise ModelError(f"the model's chat template is not valid: {line}{text}. Correct it.") from error
        for node in parsed.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
            text = f"line {node.lineno} reads another template, and a chat template is one file. Write its text there"
            raise ModelError(f"the model's chat template is not valid: {text}.")
        self._special_tokens = dict(special_tokens or {})

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] = (),
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """`tools`: as OpenAI's API describes functions; templates see None where there are none. `variables`: others
        that the template reads."""
        values = {
            **(variables or {}),
            "add_generation_prompt": add_generation_prompt,
            **self._special_tokens,
            "messages": messages,
            "tools": list(tools) or None,
        }
        try:
            return self._template.render(values)
        except RecursionError as error:
            text = "messages: the chat template nests too deeply on them; send schemas and arguments that nest less."
            raise RequestError(text, param="messages") from error
        except Exception as error:  # whatever a template raises on these messages is the request's 400
            message = f"the model's chat template refuses these messages: {error}"
            raise RequestError(message, param="messages") from error


class GenerationTag(Extension):
    """`{% generation %}` marks the assistant's text for training; here it is a block like any other."""

    def __init__(self, environment: Environment) -> None:
        self.tags = {"generation"}
        super().__init__(environment)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def make_environment() -> ImmutableSandboxedEnvironment:
    extensions = [loopcontrols, GenerationTag]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON, with the options that templates are written for: jinja2's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: str) -> None:
    raise TemplateRefusedError(message)


def strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


ENVIRONMENT = make_environment()
OWN_VARIABLES = frozenset(
    {"messages", "tools", "add_generation_prompt", "continue_final_message", *SPECIAL_TOKENS, *ENVIRONMENT.globals}
)
"""What no request may set: the server sets it, or it is the environment's."""
