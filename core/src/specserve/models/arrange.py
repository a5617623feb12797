"""Tensors that a family's checkpoints keep otherwise get the names that are looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.checkpoint import View
from specserve.models.weight_format import NOT_OF_ONE_MODEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve.models.checkpoint import Checkpoint
    from specserve.models.family import StoredAs

KINDS = (".weight", ".bias")


def arrange(checkpoint: Checkpoint, stored_as: Mapping[str, StoredAs]) -> None:
    """stored_as: see `specserve.models.family.ModelFamily.stored_as`. Raises ModelError."""
    for name, parts in by_tensor(stored_as).items():
        if name in checkpoint.names:
            check_parts(checkpoint, name, [*parts.values()])
            views = {ours: View(name, part.rows, part.of_stack, part.transposed) for ours, part in parts.items()}
            checkpoint.split(views)


def by_tensor(stored_as: Mapping[str, StoredAs]) -> dict[str, dict[str, StoredAs]]:
    """By the checkpoint's tensors, what is stored in each, by the names that are looked for."""
    parts: dict[str, dict[str, StoredAs]] = {}
    for ours, stored in stored_as.items():
        for kind in [""] if ours.endswith(KINDS) else KINDS:
            parts.setdefault(f"{stored.name}{kind}", {})[f"{ours}{kind}"] = stored
    return parts


def check_parts(checkpoint: Checkpoint, name: str, parts: Sequence[StoredAs]) -> None:
    """The tensor has as many rows, or matrices, as its parts together."""
    shape, stacks = checkpoint.find(name).shape, {part.of_stack for part in parts}
    rows = [part.num_rows for part in parts]
    found, expected = next(iter(shape), 0), sum(count for count in rows if count is not None)
    what, known = "rows", None not in rows
    if None not in stacks:
        what, known, expected = "matrices", True, len(stacks)
    if known and expected != found:
        raise ModelError(
            f"{checkpoint.path}: tensor {name} has {found} {what}, but config.json says {expected}. {NOT_OF_ONE_MODEL}"
        )
