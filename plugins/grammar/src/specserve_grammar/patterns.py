r"""Regular expressions of schemas, which are ECMAScript's (ECMA-262, 22.2), in the library's dialect, which is Rust's.

They differ without an error in classes with `[`, `&&`, `--`, `~~` or `\b`, in `\s`, `\S` and `.`, in control escapes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_ENDS = r"\n\r\x{2028}\x{2029}"
SPACES = rf"\t\x0B\x0C \x{{A0}}\x{{1680}}\x{{2000}}-\x{{200A}}\x{{202F}}\x{{205F}}\x{{3000}}\x{{FEFF}}{LINE_ENDS}"
SETS = {r"\s": f"[{SPACES}]", r"\S": f"[^{SPACES}]", ".": f"[^{LINE_ENDS}]"}
CONTROL = re.compile(r"\\c([A-Za-z])")
CLASS = re.compile(r"\[(?P<not>\^?)(?P<inner>(?:\\.|[^\]\\])*)\]", re.DOTALL)
OUTSIDE = re.compile(rf"{CLASS.pattern}|{CONTROL.pattern}|\\.|.", re.DOTALL)
ATOM = re.compile(
    rf"{CONTROL.pattern}|\\u[0-9A-Fa-f]{{4}}|\\u\{{[0-9A-Fa-f]+\}}|\\x[0-9A-Fa-f]{{2}}|\\[pP]\{{[^}}]*\}}|\\.|.",
    re.DOTALL,
)
MARKS = frozenset("[]^-&~")
"""Characters of a class that mean something to the library."""


def translated(pattern: str) -> str:
    """Equal for what both dialects take alike. What cannot be read is left as it is: the library refuses it."""
    return "".join(map(part, OUTSIDE.finditer(pattern)))


def part(match: re.Match[str]) -> str:
    text = match[0]
    if match["inner"] is not None:
        return f"[{match['not']}{''.join(members(match['inner']))}]" if match["inner"] else text
    return SETS.get(text) or control(text)


def members(inner: str) -> Iterator[str]:
    atoms = [found[0] for found in ATOM.finditer(inner)]
    at = 0
    while at < len(atoms):
        if atoms[at + 1 : at + 2] == ["-"] and at + 2 < len(atoms):
            yield f"{atom(atoms[at])}-{atom(atoms[at + 2])}"
            at += 3
        else:
            yield atom(atoms[at])
            at += 1


def atom(text: str) -> str:
    if text in MARKS:
        return f"\\{text}"
    if text == r"\b":
        return r"\x08"
    return SETS.get(text, control(text)) if text != "." else text


def control(text: str) -> str:
    found = CONTROL.fullmatch(text)
    return f"\\x{ord(found[1]) % 32:02X}" if found else text
