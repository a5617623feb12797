"""From `thinking` and `output_config.effort` to the effort of a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import RequestError
from specserve_server.chat.template_variables import THINKING_SWITCHES, knows_reasoning

if TYPE_CHECKING:
    from specserve_server.bodies.messages import CountTokensBody
    from specserve_server.bodies.requests import ReasoningEffort
    from specserve_server.templates.model_template import ModelTemplate

DEFAULT_EFFORT: ReasoningEffort = "high"
"""That of the API, for a template that needs one to turn reasoning on."""


def effort_of(template: ModelTemplate, body: CountTokensBody) -> ReasoningEffort | None:
    """None: the template's own way. Raises RequestError for thoughts of a model whose template knows none."""
    effort = body.output_config.effort if body.output_config else None
    if body.thinking is None:
        return effort
    if body.thinking.type == "disabled":
        return "none"
    if not knows_reasoning(template):
        text = "the chat template of this model knows no reasoning; leave it out, or send disabled"
        raise RequestError(f"thinking: {text}.", param="thinking")
    is_switched = any(name in template.variables for name in THINKING_SWITCHES)
    return effort or (DEFAULT_EFFORT if is_switched else None)
