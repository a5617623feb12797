"""Which files of a directory hold a model's weights, or why none do. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.formats.safetensors import Safetensors
from specserve.models.safetensors_header import INDEX, SINGLE
from specserve.models.weight_format import DOWNLOAD_AGAIN, WeightFiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from specserve.models.weight_format import WeightFormat

PICKLES = ("*.bin", "*.pt", "*.pth")


def weight_files(path: Path, formats: Sequence[WeightFormat]) -> WeightFiles:
    """The first format of which the model in directory `path` has files. Raises ModelError."""
    for candidate in formats:
        if isinstance(candidate, WeightFiles) and candidate.files(path):
            return candidate
    pickles = sorted(file.name for pattern in PICKLES for file in path.glob(pattern))
    if pickles:
        raise ModelError(
            f"{path} has only pickled weights ({pickles[0]}). Loading a pickle runs code from the file, so it is "
            "refused. Convert the weights to safetensors, or use a revision that has them."
        )
    others = [pattern for pattern in patterns_of(formats) if pattern not in Safetensors.patterns]
    raise ModelError(f"{path} has no weights: neither {' nor '.join([SINGLE, INDEX, *others])}. {DOWNLOAD_AGAIN}")


def patterns_of(formats: Sequence[WeightFormat]) -> list[str]:
    """Patterns for the names of the files that these formats read."""
    return [pattern for each in formats if isinstance(each, WeightFiles) for pattern in each.patterns]
