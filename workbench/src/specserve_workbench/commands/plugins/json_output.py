"""What `--json` prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from specserve.plugins.verdicts import verdict

if TYPE_CHECKING:
    from specserve.plugins.findings import Finding
    from specserve_checks.json_types import JsonObject, JsonValue


def finding_entry(finding: Finding) -> JsonObject:
    return {**msgspec.to_builtins(finding), "sentence": verdict(finding)}


def print_json(value: JsonValue) -> None:
    print(json.dumps(value, indent=2))
