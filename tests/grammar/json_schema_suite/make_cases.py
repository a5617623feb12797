"""Makes cases.json from the JSON-Schema-Test-Suite: `python make_cases.py DIR`, its folder `tests/draft2020-12`.

The suite is in the sdist of `jsonschema` (json/tests). Of its optional tests it takes those of numbers and patterns.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DIALECT = "https://json-schema.org/draft/2020-12/schema"
OPTIONAL = ("bignum", "ecmascript-regex", "float-overflow", "non-bmp-regex", "unknownKeyword", "no-schema")


def cases(folder: Path) -> dict[str, list[list[Any]]]:
    """By file: [description, schema, [[value, whether it is valid], ...]] of each schema."""
    files = sorted(folder.glob("*.json")) + [folder / "optional" / f"{name}.json" for name in OPTIONAL]
    return {str(file.relative_to(folder).with_suffix("")): groups(json.loads(file.read_text())) for file in files}


def groups(found: list[dict[str, Any]]) -> list[list[Any]]:
    return [
        [
            group["description"],
            without_dialect(group["schema"]),
            [[each["data"], each["valid"]] for each in group["tests"]],
        ]
        for group in found
    ]


def without_dialect(schema: Any) -> Any:
    """Unless it is another one."""
    if not isinstance(schema, dict) or schema.get("$schema") != DIALECT:
        return schema
    return {key: value for key, value in schema.items() if key != "$schema"}


if __name__ == "__main__":
    lines = [
        f"{json.dumps(name)}: {json.dumps(found, ensure_ascii=True, separators=(',', ':'))}"
        for name, found in cases(Path(sys.argv[1])).items()
    ]
    Path(__file__).with_name("cases.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
