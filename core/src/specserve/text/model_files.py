"""The JSON files of a model directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from specserve.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.json_types import JsonObject


def read_json_object(path: Path) -> JsonObject:
    """Empty where there is no such file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        raise ModelError(f"{path} is not readable JSON: {error}.") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} must hold a JSON object; got {type(content).__name__}.")
    return content
