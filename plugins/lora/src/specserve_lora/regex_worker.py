"""One regular expression on one path. Also a script: questions as JSON on standard input, answers on standard output.

Imports nothing of ours, so that it starts in a moment wherever Python does.
"""

from __future__ import annotations

import json
import re
import sys

LAYER = "layer"
"""The group whose text is the answer."""


def tried(kind: str, pattern: str, path: str) -> str | None:
    """`kind`: "full" for the whole path, "begin" for its beginning. None where it does not match, else the text of the
    group `layer`, or nothing. Raises re.error."""
    found = re.fullmatch(pattern, path) if kind == "full" else re.match(pattern, path)
    return None if found is None else found.groupdict().get(LAYER) or ""


def main() -> None:
    asked, paths = json.load(sys.stdin)
    try:
        answers = [[tried(kind, pattern, path) for path in paths] for kind, pattern in asked]
    except (re.error, RecursionError, OverflowError) as error:
        json.dump({"error": str(error)}, sys.stdout)
    else:
        json.dump({"answers": answers}, sys.stdout)


if __name__ == "__main__":
    main()
