"""The chat template of the served model: found when the engine is loaded. A model may have none.

What is found out about a template, such as the form of its tool calls, is kept under this object.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specserve.errors import RequestError
from specserve.model_files import read_optional_json
from specserve_server.templates.chat_template import ChatTemplate
from specserve_server.templates.template_files import find_chat_template, read_source, special_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ModelTemplate:
    """Safe to share between threads."""

    def __init__(
        self, template: ChatTemplate | None, special_tokens: Mapping[str, str] | None = None, file: str | None = None
    ) -> None:
        self._template = template
        self.special_tokens: Mapping[str, str] = dict(special_tokens or {})
        """By name, such as eos_token: as tokenizer_config.json has them."""
        self.file = file
        """That which was given in place of the model's own."""

    @property
    def source(self) -> str:
        """Empty where the model has none."""
        return "" if self._template is None else self._template.source

    @property
    def variables(self) -> frozenset[str]:
        """What it reads."""
        return frozenset() if self._template is None else self._template.variables

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] = (),
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """The prompt of a conversation. RequestError when the template refuses it or the model has none."""
        if self._template is None:
            raise RequestError(
                "this model has no chat template; use /v1/completions, or add chat_template.jinja to its directory.",
                param="messages",
            )
        return self._template.render(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, variables=variables
        )


def read_model_template(directory: Path | None, file: str | None = None) -> ModelTemplate:
    """`directory`: of the tokenizer; None: it has none. `file`: ServerConfig.chat_template. Raises ModelError."""
    given = None if file is None else Path(file).expanduser()
    if directory is None:
        return ModelTemplate(None if given is None else ChatTemplate(read_source(given)), file=file)
    settings = read_optional_json(directory / "tokenizer_config.json")
    return ModelTemplate(find_chat_template(directory, settings, given), special_tokens(settings), file)
