"""Other names of a model's linear maps: those of its checkpoint, and those of transformers 5, where two parameters of
one module hold the experts of a layer.

The checkpoint's names come from the model's family, through the projections. Letters: E experts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from specserve.api import AdaptableProjection

Outputs: TypeAlias = "tuple[str, slice]"
"""A projection, and some of its outputs."""
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


def named_by_checkpoint(
    projections: Mapping[str, AdaptableProjection],
) -> tuple[dict[str, list[Outputs]], dict[tuple[str, str], list[Outputs]]]:
    """Linear maps by path; stacks of the matrices of E experts by path and parameter."""
    linear: dict[str, list[Outputs]] = {}
    stacks: dict[tuple[str, str], list[Outputs]] = {}
    for path, pieces in pieces_by_tensor(projections).items():
        by_stack: dict[int | None, list[Piece]] = {}
        for piece in sorted(pieces, key=lambda piece: (piece.stack or 0, piece.first_row)):
            by_stack.setdefault(piece.stack, []).append(piece)
        joined = [outputs_of(one) for one in by_stack.values()]
        places = [outputs for outputs in joined if outputs is not None]
        if len(places) < len(joined):
            continue  # an adapter of it would change several projections, or outputs in another order
        if None in by_stack:
            linear[path] = places
        else:
            stacks[path, "weight"] = places
    return linear, stacks


def pieces_by_tensor(projections: Mapping[str, AdaptableProjection]) -> dict[str, list[Piece]]:
    found: dict[str, list[Piece]] = {}
    for name, projection in projections.items():
        for path, piece in pieces_of(name, projection):
            found.setdefault(path, []).append(piece)
    return found


def pieces_of(name: str, projection: AdaptableProjection) -> Iterator[tuple[str, Piece]]:
    """By the names of the checkpoint's tensors."""
    for part, stored in projection.whole.stored.items():
        outs = projection.whole.parts[part]
        if stored.transposed or stored.every > 1:
            continue
        yield stored.name, Piece(stored.of_stack, stored.first_row, name, outs.start, outs.stop)


def outputs_of(pieces: Sequence[Piece]) -> Outputs | None:
    """Of all pieces of one matrix in its order; None where they are not outputs of one projection in the same order."""
    first, last = pieces[0], pieces[-1]
    follow = all(a.end == b.begin and b.first_row - a.first_row == a.end - a.begin for a, b in pairwise(pieces))
    same = len({piece.projection for piece in pieces}) == 1
    return (first.projection, slice(first.begin, last.end)) if follow and same else None


def named_by_class(projections: Mapping[str, AdaptableProjection]) -> dict[tuple[str, str], list[Outputs]]:
    """By path and parameter: what transformers 5 has in the block of each layer with experts, under the names that the
    block has in the checkpoint and here. A router that was a module within a module is the outer one there."""
    found: dict[tuple[str, str], list[Outputs]] = {}
    for router, projection in projections.items():
        layer, _, own = router.rpartition(".")
        if own != ROUTER:
            continue
        ((part, outs),) = projection.whole.parts.items()
        blocks = [BLOCK]
        if part in projection.whole.stored:
            *path, block, module = projection.whole.stored[part].name.split(".")[: LEVELS + 2]
            blocks.insert(0, block)
            found[".".join((*path, block, module)), "weight"] = [(router, outs)]
        for block in blocks:
            for name in OF_EXPERT:
                if places := of_every_expert(projections, layer, name):
                    found[f"model.{layer}.{block}.experts", name] = places
    return found


def of_every_expert(projections: Mapping[str, AdaptableProjection], layer: str, name: str) -> list[Outputs]:
    """Empty where the checkpoint's stacks have the rows of an expert in another order, as gates and ups by turns, or
    its matrices transposed: transformers' parameters have it, too."""
    found: list[Outputs] = []
    while projection := projections.get(f"{layer}.experts.{len(found)}.{name}"):
        if any(part.transposed or part.every > 1 for part in projection.whole.stored.values()):
            return []
        stacked = [piece for _, piece in pieces_of(projection.name, projection) if piece.stack is not None]
        if stacked and outputs_of(sorted(stacked, key=lambda piece: piece.first_row)) is None:
            return []
        found.append((projection.name, slice(0, max(outs.stop for outs in projection.whole.parts.values()))))
    return found
