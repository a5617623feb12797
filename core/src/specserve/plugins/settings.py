"""`--set NAME.key=value` as tables of options, and how tables merge."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Table = dict[str, Any]
PART = re.compile(r'"([^"]+)"|([^."=\s]+)')
USAGE = 'write --set NAME.key=value, where NAME is a plugin; quote a key with dots: lora.adapters."a.b"=PATH'


def parse_settings(settings: Sequence[str]) -> dict[str, Table]:
    """`["ngram.max_n=4", "lora.adapters.a=/x"]` -> `{"ngram": {"max_n": "4"}, "lora": {"adapters": {"a": "/x"}}}`.

    Values stay text, which the plugin's Struct converts, except true and false and what begins with [ or {,
    which is TOML. A later setting replaces an earlier one.
    """
    tables: dict[str, Table] = {}
    for setting in settings:
        path, value = parse_setting(setting)
        tables = merge(tables, nest(path, value))
    return tables


def parse_setting(setting: str) -> tuple[list[str], Any]:
    key = re.match(r'((?:"[^"]*"|[^"=])*)=', setting)
    if key is None:
        raise ConfigError(f"--set {setting}: no '=' found; {USAGE}.")
    return split_key(key[1], setting), parse_value(setting[key.end() :], setting)


def split_key(key: str, setting: str) -> list[str]:
    parts, position = [], 0
    while match := PART.match(key, position):
        parts.append(match[1] or match[2])
        position = match.end()
        if key[position : position + 1] != ".":
            break
        position += 1
    if position != len(key) or key.endswith(".") or len(parts) < 2:
        raise ConfigError(f"--set {setting}: {key!r} does not name an option; {USAGE}.")
    return parts


def parse_value(text: str, setting: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--set {setting}: a value that begins with [ or {{ must be TOML: {error}.") from None


def nest(path: Sequence[str], value: Any) -> Table:
    for part in reversed(path):
        value = {part: value}
    return dict(value)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """Tables merge key by key; anything else in `over` replaces. Neither argument changes."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
