"""What other engines have to know of one of our draft heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import ModelError
from specserve.models.locate import locate_model
from specserve.models.read_config import read_config
from specserve_eagle.block.config import read_block_config
from specserve_eagle.checkpoints import kind_of, read_head_config

if TYPE_CHECKING:
    from pathlib import Path


class PeerHead(NamedTuple):
    path: Path
    kind: str
    """As the other engines call it: eagle3, dflash or dspark."""
    longest: int | None
    """Draft tokens of a chain at most; None: as many as asked for."""


def peer_head(name: str, target: str) -> PeerHead:
    """The head of this name or path, for this target. Raises ModelError where it is of a kind that is not compared."""
    path, config = locate_model(name).resolve(), read_config(locate_model(target))
    kind = kind_of(path)
    if kind == "block":
        block = read_block_config(path, config)
        return PeerHead(path, "dspark" if block.markov_rank else "dflash", block.num_proposed)
    if kind != "eagle3":
        raise ModelError(f"{name} is a draft model of the kind {kind}. Compared are EAGLE-3, DFlash and DSpark heads.")
    if read_head_config(path, config).masks is not None:
        raise ModelError(f"{name} is a P-EAGLE head. Compared are EAGLE-3, DFlash and DSpark heads.")
    return PeerHead(path, kind, None)
