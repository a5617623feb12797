"""JSON files of a model directory; a file that cannot be read is a ModelError that names it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from specserve.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

RawJson: TypeAlias = dict[str, Any]
"""An object as the file has it: nothing is known of its values before `msgspec.convert` has checked them."""


def read_json(file: Path) -> RawJson:
    """A JSON object that a model must have. Raises ModelError."""
    try:
        return parse(file, file.read_bytes())
    except FileNotFoundError:
        raise ModelError(
            f"model directory {file.parent} has no {file.name}. A model is a directory in Hugging Face format: "
            "config.json, *.safetensors and tokenizer.json."
        ) from None
    except OSError as error:
        raise unreadable(file, error) from None


def read_optional_json(file: Path) -> RawJson:
    """A JSON object; empty where there is no such file. Raises ModelError."""
    return read_json(file) if file.exists() else {}


def of_text(config: RawJson) -> RawJson:
    """config.json with what it says of its text part alone, where the model reads images, too."""
    inner = config.get("text_config")
    given = {key: value for key, value in config.items() if value is not None}
    return {**inner, **given} if isinstance(inner, dict) else config


def parse(file: Path, content: bytes) -> RawJson:
    try:
        raw = json.loads(content)
    except ValueError as error:
        raise unreadable(file, error) from None
    if not isinstance(raw, dict):
        raise ModelError(f"{file} must hold a JSON object; got {type(raw).__name__}.")
    return raw


def unreadable(file: Path, error: Exception) -> ModelError:
    return ModelError(f"{file} is not readable JSON: {error}. Download the file again.")
