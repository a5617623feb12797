"""`--set NAME.key=value` as tables of options, and how tables merge."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Table = dict[str, object]
PART = re.compile(r'"([^"]+)"|([^."=\s]+)')
USAGE = 'write --set NAME.key=value, where NAME is a plugin; quote a key with dots: lora.adapters."a.b"=PATH'


def parse_settings(settings: Sequence[str]) -> dict[str, Table]:
    """`["ngram.max_n=4", "lora.adapters.a=/x"]` -> `{"ngram": {"max_n": "4"}, "lora": {"adapters": {"a": "/x"}}}`.

    Values stay text, which the plugin's Struct converts, except true and false and what begins with [ or {,
    which is TOML. A later setting replaces an earlier one.
    """
    tables: dict[str, Table] = {}
    for setting in settings:
        (plugin, *path), value = parse_setting(setting)
        tables[plugin] = merge(tables.get(plugin, {}), nest(path, value))
    return tables


def parse_setting(setting: str) -> tuple[list[str], object]:
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


def parse_value(text: str, setting: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    if not text.startswith(("[", "{")):
        return text
    try:
        value: object = tomllib.loads(f"value = {text}")["value"]
        return value
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--set {setting}: a value that begins with [ or {{ must be TOML: {error}.") from None


def nest(path: Sequence[str], value: object) -> Table:
    table: Table = {path[-1]: value}
    for part in reversed(path[:-1]):
        table = {part: table}
    return table


def merge(base: Mapping[str, object], over: Mapping[str, object]) -> Table:
    """Tables merge key by key; any other value of `over` replaces that of `base`. Neither argument changes."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
