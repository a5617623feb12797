"""Schemas, and requests that ask for them; engines with the plugin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import StructuredOutput
from specserve_workbench.testing.engines import make_engine, verify_everything
from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "role": {"enum": ["administrator", "author", "reader"]},
        "is_active": {"type": "boolean"},
    },
    "required": ["name", "age", "role", "is_active"],
    "additionalProperties": False,
}


def wanted(kind: str, text: object = "") -> StructuredOutput:
    """`text`: as it is, or to be written as JSON."""
    return StructuredOutput(kind=kind, text=text if isinstance(text, str) else json.dumps(text))  # type: ignore[arg-type]


def structured(request_id: str, prompt: Any, form: StructuredOutput, **params: Any) -> GenerateRequest:
    return toy_request(request_id, prompt, structured_output=form, **({"max_tokens": 120} | params))


def grammar_engine(
    model: Path | str, *, beside: tuple[str, ...] = (), everything: bool = True, **options: Any
) -> Engine:
    """With the plugin; every draft is verified unless `everything` is false. `grammar`: the plugin's options."""
    tables = {"grammar": options.pop("grammar", {}), **options.pop("plugin_options", {})}
    planner = FixedWidthPlanner(32) if everything and "adaptive" not in beside else None
    engine = make_engine(model, planner=planner, plugins=("grammar", *beside), plugin_options=tables, **options).engine
    return verify_everything(engine) if everything else engine
