"""Reading a text for calls, in whatever pieces it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_server.tools.reading import CallReading

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from specserve_server.tools.form import ToolForm

NAMES = frozenset({"weather", "f", "g"})


def reading_of(form: ToolForm | CallReading) -> CallReading:
    return form if isinstance(form, CallReading) else CallReading(form=form, names=NAMES)


def read(form: ToolForm | CallReading, pieces: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """The text, and the calls as names and arguments."""
    stream, text, calls = reading_of(form).stream(), "", list[list[str]]()
    for i, piece in enumerate(pieces):
        parsed = stream.push(piece, final=i + 1 == len(pieces))
        text += parsed.text
        for found in parsed.calls:
            if found.name is not None:
                assert found.index == len(calls)
                calls.append([found.name, ""])
            assert found.index == len(calls) - 1
            calls[-1][1] += found.arguments
    assert stream.has_calls == bool(calls)
    return text, [(name, arguments) for name, arguments in calls]


def cut(text: str, places: Iterable[int]) -> list[str]:
    """The text in pieces, divided at these places."""
    cuts = sorted({place % (len(text) + 1) for place in places})
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
