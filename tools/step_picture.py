"""Draws docs/images/step.svg: one real step of the demo model, from docs/images/step.json (tools/record_step.py).

`make pages` runs it. The draft is a tree from left to right, with what was accepted in the upper line. Under it stands
what the step added to the text.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from svg import AMBER, BLUE, FAINT, GREEN, GREY, INK, MONO, ON_CHIP, box, line, picture, text

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
COLOURS = (AMBER, BLUE, GREEN)
"""Of drafters, in the order in which the draft names them."""
HEIGHT, GAP, PITCH, CHARACTER = 28.0, 26.0, 62.0, 8.5
"""A chip's height, the gap to the next one, the distance of two lines, and the width of a character of 14 pixels."""
LEFT, TREE_TOP, WIDTH = 20.0, 66.0, 700.0


class Token(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    drafter: str | None = None


class Node(Token, frozen=True, kw_only=True):
    parent: int | None
    survival: float | None
    accepted: bool


class Step(msgspec.Struct, frozen=True, kw_only=True):
    tokens: list[Token]
    draft: list[Node]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """`before` is the answer's text until the step."""

    model: str
    prompt: str
    before: str
    step: Step


class Cell(NamedTuple):
    column: int
    row: int


class Chip(NamedTuple):
    """A token's place: its left upper corner and its width."""

    x: float
    y: float
    width: float


def main() -> None:
    record = msgspec.json.decode((IMAGES / "step.json").read_bytes(), type=Record)
    (IMAGES / "step.svg").write_text(drawn(record))


def drawn(record: Record) -> str:
    step, last = record.step, record.before.split()[-1]
    colours = dict(zip(dict.fromkeys(node.drafter for node in step.draft), COLOURS, strict=False))
    cells = tree_cells(step.draft)
    below = TREE_TOP + PITCH * (1 + max(cell.row for cell in cells))
    elements = [
        text(LEFT, 24, "1  One pass of the model checks every token of a draft", font_weight="600"),
        *legend(colours, 48),
        *tree(last, step.draft, chips(step.draft, cells, chip_width(last)), colours),
        text(LEFT, below + 14, f"2  What is right is kept: {len(step.tokens)} tokens from one step", font_weight="600"),
        *added(last, step.tokens, colours, below + 30),
    ]
    return picture(WIDTH, below + 74, spoken(record), elements)


def tree_cells(draft: list[Node]) -> list[Cell]:
    """Of each node. Columns are depths; a first child goes on in its parent's row, accepted ones are first."""
    cells: dict[int, Cell] = {}
    rows = 0

    def put(parent: int | None, column: int, row: int) -> None:
        nonlocal rows
        children = [number for number, node in enumerate(draft) if node.parent == parent]
        for order, child in enumerate(sorted(children, key=lambda number: not draft[number].accepted)):
            rows += order > 0
            cells[child] = Cell(column, row if order == 0 else rows)
            put(child, column + 1, cells[child].row)

    put(None, 1, 0)
    return [cells[number] for number in range(len(draft))]


def chips(draft: list[Node], cells: list[Cell], first: float) -> list[Chip]:
    """Of each node, in the middle of its column, which is as wide as its widest chip; `first` is the root's width."""
    widths = [first] + [0.0] * max(cell.column for cell in cells)
    for node, cell in zip(draft, cells, strict=True):
        widths[cell.column] = max(widths[cell.column], chip_width(node.text))
    found = []
    for node, cell in zip(draft, cells, strict=True):
        width = chip_width(node.text)
        left = LEFT + sum(widths[: cell.column]) + GAP * cell.column
        found.append(Chip(left + (widths[cell.column] - width) / 2, TREE_TOP + PITCH * cell.row, width))
    return found


def tree(last: str, draft: list[Node], places: list[Chip], colours: dict[str | None, str]) -> list[str]:
    root = Chip(LEFT, TREE_TOP, chip_width(last))
    found = [token_chip(root, last, GREY)]
    for node, place in zip(draft, places, strict=True):
        found.append(branch(root if node.parent is None else places[node.parent], place))
        found.append((token_chip if node.accepted else wrong_chip)(place, node.text, colours[node.drafter]))
        if node.survival is not None:
            below, middle = place.y + HEIGHT + 14, place.x + place.width / 2
            found.append(text(middle, below, f"{node.survival:.2f}", font_size=12.0, text_anchor="middle"))
    return found


def branch(parent: Chip, child: Chip) -> str:
    """Down right behind the parent, where the child is in another row."""
    left, top, bottom = parent.x + parent.width, parent.y + HEIGHT / 2, child.y + HEIGHT / 2
    turn = left + GAP / 2
    return line([(left, top), (turn, top), (turn, bottom), (child.x, bottom)], FAINT, stroke_width=1.5)


def added(last: str, tokens: list[Token], colours: dict[str | None, str], y: float) -> list[str]:
    """The step's tokens behind the text's last one."""
    found, x = [token_chip(Chip(LEFT, y, chip_width(last)), last, GREY)], LEFT + chip_width(last) + 3
    for token in tokens:
        found.append(token_chip(Chip(x, y, chip_width(token.text)), token.text, colours.get(token.drafter, GREY)))
        x += chip_width(token.text) + 3
    if tokens[-1].drafter is None:
        words = f"{shown(tokens[-1].text)}  is the model's own: the same pass computed it"
        found.append(text(x + 10, y + 19, words, font_size=13.0))
    return found


def legend(colours: dict[str | None, str], y: float) -> list[str]:
    found, x = [], LEFT
    for words, colour in [*((f"guessed by {name}", colour) for name, colour in colours.items()), ("wrong", "none")]:
        dashes = {"stroke": INK, "stroke_dasharray": "3 2"} if colour == "none" else {}
        found += [box(x, y - 11, 12, 12, colour, rx=3.0, **dashes), text(x + 18, y, words, font_size=13.0)]
        x += 42 + 7.2 * len(words)
    return [*found, text(x, y, "0.93: how sure the drafter was", font_size=13.0)]


def token_chip(place: Chip, token: str, colour: str) -> str:
    words = text(place.x + 9, place.y + 19, shown(token), ON_CHIP, font_family=MONO)
    return box(place.x, place.y, place.width, HEIGHT, colour, rx=5.0) + words


def wrong_chip(place: Chip, token: str, colour: str) -> str:
    words = text(place.x + 9, place.y + 19, shown(token), font_family=MONO)
    around = box(
        place.x, place.y, place.width, HEIGHT, "none", rx=5.0, stroke=colour, stroke_width=1.5, stroke_dasharray="4 3"
    )
    return around + words


def chip_width(token: str) -> float:
    return 18 + CHARACTER * len(shown(token))


def shown(token: str) -> str:
    """Blanks as dots, ends of lines as arrows."""
    return token.replace(" ", "·").replace("\n", "↵")


def spoken(record: Record) -> str:
    accepted = sum(node.accepted for node in record.step.draft)
    return f"One step: of {len(record.step.draft)} drafted tokens the model accepts {accepted} and adds one of its own"


if __name__ == "__main__":
    main()
