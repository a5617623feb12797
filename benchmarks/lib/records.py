"""The structured output that cases ask for: eight records with fixed keys, and how many requests ask at once."""

from __future__ import annotations

from benchmarks.lib.workload import MANY

COUNTS, TEMPERATURES = (1, 8, MANY), (0.0, 0.8)
NUM_TOKENS = 400
RECORD = {
    "type": "object",
    "properties": {
        "identifier": {"type": "integer", "minimum": 0, "maximum": 9999},
        "description": {"type": "string", "maxLength": 40},
        "status": {"enum": ["pending", "running", "finished", "cancelled"]},
        "is_archived": {"type": "boolean"},
    },
    "required": ["identifier", "description", "status", "is_archived"],
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "properties": {"records": {"type": "array", "items": RECORD, "minItems": 8, "maxItems": 8}},
    "required": ["records"],
    "additionalProperties": False,
}
