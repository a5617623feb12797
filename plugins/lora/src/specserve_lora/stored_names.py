"""Other names of a model's linear maps: those of its checkpoint, and those of transformers 5, where two parameters of
one module hold the experts of a layer.

The checkpoint's names come from the model's family, through the projections. Letters: E experts.
"""

from __future__ import annotations

from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from specserve.api import AdaptableProjection


class Place(NamedTuple):
    """Some outputs of a projection."""

    projection: str
    outs: slice
    turns: int = 1
    """How many equal parts of `outs` a parameter has by turns: with 2 its rows are a gate, an up, a gate, ..."""


LEVELS = 3
"""Of a layer's path: `model.layers.0`."""
BLOCK = "mlp"
"""What holds a layer's experts where the checkpoint does not say otherwise."""
ROUTER, OF_EXPERT = "router", ("gate_up_proj", "down_proj")
"""Projections of a layer with experts: its own, and those of each expert, which have the names of transformers 5's
parameters, in the order in which a module has these."""


class Piece(NamedTuple):
    """A part of a projection, and where the checkpoint has it."""

    stack: int | None
    first_row: int
    projection: str
    begin: int
    end: int
    every: int
    """As in `StoredAs`."""

    def joins(self, other: Piece) -> bool:
        """The other one follows in the projection, and its rows follow in the checkpoint."""
        rows = 1 if self.every > 1 else self.end - self.begin
        follows = other.projection == self.projection and other.begin == self.end
        return follows and other.every == self.every and other.first_row == self.first_row + rows


def named_by_checkpoint(
    projections: Mapping[str, AdaptableProjection],
) -> tuple[dict[str, list[Place]], dict[tuple[str, str], list[Place]]]:
    """Linear maps by path; stacks of the matrices of E experts by path and parameter."""
    linear: dict[str, list[Place]] = {}
    stacks: dict[tuple[str, str], list[Place]] = {}
    for path, pieces in pieces_by_tensor(projections).items():
        by_stack: dict[int | None, list[Piece]] = {}
        for piece in sorted(pieces, key=lambda piece: (piece.stack or 0, piece.first_row)):
            by_stack.setdefault(piece.stack, []).append(piece)
        joined = [place_of(one) for one in by_stack.values()]
        places = [place for place in joined if place is not None]
        if len(places) < len(joined):
            continue  # an adapter of it would change several projections, or outputs in another order
        if None in by_stack:
            linear[path] = places
        else:
            stacks[path, "weight"] = places
    return linear, stacks


def named_by_library(projections: Mapping[str, AdaptableProjection]) -> dict[tuple[str, str], list[Place]]:
    """By path and parameter, in the models of libraries: the matrices of E experts, whose rows are in its order."""
    found: dict[tuple[str, str], list[Place]] = {}
    for name, projection in projections.items():
        for part, stored in projection.whole.stored.items():
            if is_of_library(part):
                path, _, parameter = stored.name.rpartition(".")
                found.setdefault((path, parameter), []).append(Place(name, projection.whole.parts[part]))
    return found


def is_of_library(part: str) -> bool:
    """Parts of libraries' models have whole paths as names; those that are stored otherwise are no modules."""
    return "." in part


def pieces_by_tensor(projections: Mapping[str, AdaptableProjection]) -> dict[str, list[Piece]]:
    """Without stacks of transposed matrices and those of libraries' models, which are parameters of other modules: see
    `named_by_class` and `named_by_library`."""
    found: dict[str, list[Piece]] = {}
    for name, projection in projections.items():
        if any(is_of_library(part) or stored.transposed for part, stored in projection.whole.stored.items()):
            continue
        for path, piece in pieces_of(name, projection):
            found.setdefault(path, []).append(piece)
    return found


def pieces_of(name: str, projection: AdaptableProjection) -> Iterator[tuple[str, Piece]]:
    """By the names of the checkpoint's tensors."""
    for part, stored in projection.whole.stored.items():
        outs = projection.whole.parts[part]
        yield stored.name, Piece(stored.of_stack, stored.first_row, name, outs.start, outs.stop, stored.every)


def place_of(pieces: Sequence[Piece]) -> Place | None:
    """Of all pieces of one matrix in its order; None where they are not outputs of one projection in the same order."""
    first, last = pieces[0], pieces[-1]
    sizes = {piece.end - piece.begin for piece in pieces}
    if not all(a.joins(b) for a, b in pairwise(pieces)) or (
        first.every > 1 and (len(pieces), len(sizes)) != (first.every, 1)
    ):
        return None
    return Place(first.projection, slice(first.begin, last.end), first.every)


def named_by_class(projections: Mapping[str, AdaptableProjection]) -> dict[tuple[str, str], list[Place]]:
    """By path and parameter: what transformers 5 has in the block of each layer with experts, under the names that the
    block has in the checkpoint and here. A router that was a module within a module is the outer one there."""
    found: dict[tuple[str, str], list[Place]] = {}
    for router, projection in projections.items():
        layer, _, own = router.rpartition(".")
        if own != ROUTER:
            continue
        ((part, outs),) = projection.whole.parts.items()
        blocks = [BLOCK]
        if part in projection.whole.stored:
            *path, block, module = projection.whole.stored[part].name.split(".")[: LEVELS + 2]
            blocks.insert(0, block)
            found[".".join((*path, block, module)), "weight"] = [Place(router, outs)]
        held = {f"model.{layer}.{block}.experts" for block in blocks}
        if module := module_of_stacks(projections, layer):
            held = {module, f"model.{layer}.{BLOCK}.experts"}
        for module, name in product(sorted(held), OF_EXPERT):
            if places := of_every_expert(projections, layer, name):
                found[module, name] = places
    return found


def module_of_stacks(projections: Mapping[str, AdaptableProjection], layer: str) -> str:
    """The module that has the layer's experts as parameters in the checkpoint itself; empty where there is none."""
    first = projections.get(f"{layer}.experts.0.{OF_EXPERT[-1]}")
    names = [] if first is None else [each.name for each in first.whole.stored.values() if each.of_stack is not None]
    module = names[0].rpartition(".")[0] if names else ""
    return module if module.endswith(".experts") else ""


def of_every_expert(projections: Mapping[str, AdaptableProjection], layer: str, name: str) -> list[Place]:
    """Transformers' parameters have the rows of the checkpoint's stacks, in their order. Empty where no low-rank part
    can follow it. Whether the matrices are transposed is no matter: PEFT's tensors are the same for both."""
    found: list[Place] = []
    while projection := projections.get(f"{layer}.experts.{len(found)}.{name}"):
        stacked = [piece for _, piece in pieces_of(projection.name, projection) if piece.stack is not None]
        place: Place | None = Place(
            projection.name, slice(0, max(outs.stop for outs in projection.whole.parts.values()))
        )
        if stacked:
            place = place_of(sorted(stacked, key=lambda piece: piece.first_row))
        if place is None:
            return []
        found.append(place)
    return found
