"""An engine's configuration as TOML, for `specserve serve --config`. Only what differs from the defaults is written."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import msgspec

from specserve.config import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BARE_KEY = re.compile(r"[\w-]+", re.ASCII)


def engine_toml(config: EngineConfig, comment: str) -> str:
    """`comment`: written above it, a line each."""
    defaults = msgspec.to_builtins(EngineConfig())
    values = {name: value for name, value in msgspec.to_builtins(config).items() if value != defaults[name]}
    options = values.pop("plugin_options", {})
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += table("engine", {"model": config.model, **values})
    for name, own in options.items():
        lines += table(f"plugins.{key(name)}", own)
    return "\n".join(lines) + "\n"


def table(name: str, values: Mapping[str, object]) -> Iterator[str]:
    """Values that are None are left out: TOML has none."""
    yield ""
    yield f"[{name}]"
    for field, value in values.items():
        if value is not None:
            yield f"{key(field)} = {written(value)}"


def written(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key(name)} = {written(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    return json.dumps(value, ensure_ascii=False)  # strings, numbers and booleans are written as in JSON


def key(name: str) -> str:
    return name if BARE_KEY.fullmatch(name) else json.dumps(name)
