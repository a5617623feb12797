"""Matches regular expressions against module paths. Also a script: JSON queries on standard input, answers on standard
output.

Imports only the standard library, so that the script starts quickly and without specserve on its path.
"""

from __future__ import annotations

import json
import re
import sys

LAYER = "layer"
"""The group whose text is the answer."""


def match_layer(kind: str, pattern: str, path: str) -> str | None:
    """`kind`: "full" matches the whole path, "prefix" its beginning. None without a match, else the text of the group
    `layer`, or "". Raises re.error."""
    match = re.fullmatch(pattern, path) if kind == "full" else re.match(pattern, path)
    return None if match is None else match.groupdict().get(LAYER) or ""


def main() -> None:
    queries, paths = json.load(sys.stdin)
    try:
        answers = [[match_layer(kind, pattern, path) for path in paths] for kind, pattern in queries]
    except (re.error, RecursionError, OverflowError) as error:
        json.dump({"error": str(error)}, sys.stdout)
    else:
        json.dump({"answers": answers}, sys.stdout)


if __name__ == "__main__":
    main()
