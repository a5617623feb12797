"""Writes proofs.json of the page from docs/compatibility.json: for any two plugins the test of the conformance kit that
proves that they work together, what it saw, and the version that it ran.

`make pages` runs it, `make proofs` runs the kit before.
"""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specserve import __version__
from specserve.plugins.features import CORE_FEATURES
from specserve_server.cli import main as specserve

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "docs" / "compatibility.json"
WRITTEN = ROOT / "page" / "src" / "specserve_page" / "static" / "proofs.json"


def main() -> None:
    WRITTEN.write_text(text(), encoding="utf-8")


def text() -> str:
    """A line for each pair."""
    lines = ",\n".join(json.dumps(each) for each in proven())
    return f'{{"version": "{__version__}", "proofs": [\n{lines}\n]}}\n'


def proven() -> Iterator[dict[str, Any]]:
    """The pairs of plugins that `specserve plugins matrix` calls proven."""
    with redirect_stdout(StringIO()) as printed:
        code = specserve(["plugins", "matrix", "--json", "--proofs", str(REPORT)])
    assert code == 0
    for found in json.loads(printed.getvalue()):
        proof = found["proof"]
        if found["kind"] == "compatible" and proof is not None and found["right"] not in CORE_FEATURES:
            names = [found["left"], found["right"]]
            yield {"plugins": names, "test": f"{proof['plugin']}: {proof['what']}", "saw": proof["detail"]}


if __name__ == "__main__":
    main()
