"""The metrics of several replicas as one text in Prometheus' format: each sample gets the label `replica`.

A family's lines stand together, as the format asks for. Knows no metric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LABEL = "replica"


def merge_metrics(texts: Mapping[str, str]) -> str:
    """`texts`: by replica, whose ids need no escaping."""
    heads: dict[str, dict[str, None]] = {}
    samples: dict[str, list[str]] = {}
    for replica, text in texts.items():
        family = ""
        for line in text.splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2]
                heads.setdefault(family, {})[line] = None
            elif line:
                samples.setdefault(family, []).append(labelled(line, replica))
    families = dict.fromkeys([*heads, *samples])
    lines = [line for name in families for line in (*heads.get(name, ()), *samples.get(name, ()))]
    return "".join(f"{line}\n" for line in lines)


def labelled(sample: str, replica: str) -> str:
    """`name{a="b"} 1` or `name 1`; a name has neither blanks nor braces."""
    end = min(place for place in (sample.find("{"), sample.find(" ")) if place >= 0)
    name, rest = sample[:end], sample[end:]
    label = f'{LABEL}="{replica}"'
    if rest.startswith("{}"):
        return f"{name}{{{label}}}{rest[2:]}"
    return f"{name}{{{label},{rest[1:]}" if rest.startswith("{") else f"{name}{{{label}}}{rest}"
