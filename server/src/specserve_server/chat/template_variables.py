"""What a body sets of its model's chat template: `chat_template_kwargs`, `documents`, `reasoning_effort`, `verbosity`.

A variable that the template does not read is refused: the answer would be the one without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

import msgspec

from specserve.errors import RequestError
from specserve_checks.type_words import shown
from specserve_server.limits import MAX_TEMPLATE_KWARGS_BYTES, MAX_TEMPLATE_KWARGS_DEPTH
from specserve_server.templates.chat_template import OWN_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve_server.templates.model_template import ModelTemplate

KWARGS = "chat_template_kwargs"
BODY_FIELDS = ("documents", "reasoning_effort", "verbosity")
"""Variables that have a field of their own in a body."""
DEFAULT_VERBOSITY = "medium"
THINKING_SWITCHES = ("enable_thinking", "thinking")
"""Names of templates' variables that turn reasoning on and off."""
SHOWN_VARIABLES = 20


class TemplateBody(Protocol):
    @property
    def chat_template_kwargs(self) -> msgspec.Raw: ...

    @property
    def documents(self) -> list[dict[str, str]] | None: ...

    @property
    def reasoning_effort(self) -> str | None: ...

    @property
    def verbosity(self) -> str | None: ...


def template_variables(template: ModelTemplate, body: TemplateBody) -> dict[str, object]:
    """By name, for `ModelTemplate.render`. Raises RequestError for what the template does not read."""
    kwargs = decode_kwargs(bytes(body.chat_template_kwargs))
    for name, value in kwargs.items():
        if name not in template.variables and not turns_off_what_is_off(template, name, value):
            refuse_kwarg(name, template.variables)
    given = {**documents(template, body), **reasoning(template, body), **verbosity(template, body)}
    return {**given, **kwargs}


def turns_off_what_is_off(template: ModelTemplate, name: str, value: object) -> bool:
    """Clients send it to every model, and one whose template knows no reasoning does what they want."""
    return name in THINKING_SWITCHES and value is False and not knows_reasoning(template)


def knows_reasoning(template: ModelTemplate) -> bool:
    return "think" in template.source or "reasoning_effort" in template.variables


def decode_kwargs(text: bytes) -> dict[str, object]:
    """Bounded in size and depth, without reserved names. `text`: JSON, "" where the field was not sent."""
    if text in (b"", b"null"):
        return {}
    if len(text) > MAX_TEMPLATE_KWARGS_BYTES:
        refuse(KWARGS, f"at most {MAX_TEMPLATE_KWARGS_BYTES} bytes; got {len(text)}")
    try:
        kwargs = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        refuse(KWARGS, "an object that maps names of the template's variables to values")
    if depth(kwargs) > MAX_TEMPLATE_KWARGS_DEPTH:
        refuse(KWARGS, f"it may nest {MAX_TEMPLATE_KWARGS_DEPTH} levels")
    for name in kwargs:
        if name in OWN_VARIABLES:
            refuse(KWARGS, f"{name} is reserved: the server sets it")
        if name in ("chat_template", *BODY_FIELDS[:1]):
            refuse(KWARGS, f"{name} is reserved: it is a field of the body")
    return kwargs


def depth(value: object) -> int:
    """Of nested lists and objects; level by level, so that no recursion can be too deep."""
    levels, values = 0, [value]
    while values := [inner for outer in values for inner in children(outer)]:
        levels += 1
    return levels


def children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def documents(template: ModelTemplate, body: TemplateBody) -> dict[str, object]:
    if not body.documents:
        return {}
    if "documents" not in template.variables:
        refuse("documents", "the chat template of this model has no place for them; put their text into a message")
    return {"documents": body.documents}


def reasoning(template: ModelTemplate, body: TemplateBody) -> dict[str, object]:
    """The effort itself where the template reads it, else its switch: off for `none`, on for all others. `none` is also
    the effort of a model whose template knows no reasoning."""
    effort, read = body.reasoning_effort, template.variables
    if effort is None:
        return {}
    if "reasoning_effort" in read:
        return {"reasoning_effort": effort}
    switches = {name: effort != "none" for name in THINKING_SWITCHES if name in read}
    if not switches and (effort != "none" or knows_reasoning(template)):
        refuse("reasoning_effort", "the chat template of this model cannot set it; leave it out")
    return dict(switches)


def verbosity(template: ModelTemplate, body: TemplateBody) -> dict[str, object]:
    if "verbosity" in template.variables:
        return {} if body.verbosity is None else {"verbosity": body.verbosity}
    if body.verbosity not in (None, DEFAULT_VERBOSITY):
        refuse("verbosity", "the chat template of this model cannot set it; ask for it in a message")
    return {}


def refuse_kwarg(name: str, read: frozenset[str]) -> NoReturn:
    allowed = ", ".join(sorted(read - OWN_VARIABLES - {"documents"})[:SHOWN_VARIABLES]) or "no other variables"
    refuse(KWARGS, f"the chat template of this model does not read {shown(name)}; it reads {allowed}")


def refuse(param: str, text: str) -> NoReturn:
    raise RequestError(f"{param}: {text}.", param=param)
