"""The options of `specserve-eagle train`, as they were given."""

from __future__ import annotations

from pathlib import Path

import msgspec

from specserve_eagle.block.config import MarkovKind


class TrainOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One run. None: the default that depends on the target."""

    target: str
    data: tuple[str, ...]
    out: Path
    head: str
    eval_data: tuple[str, ...] = ()
    unroll: int = 5
    length: int = 512
    batch: int = 8
    reuse: int = 1
    minutes: float | None = None
    max_steps: int | None = None
    draft_vocab: int | None = None
    intermediate_size: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    hidden_size: int | None = None
    untied: bool = False
    block_size: int | None = None
    anchors: int | None = None
    mask_token: int | None = None
    markov: MarkovKind | None = None
    markov_rank: int | None = None
    rank: int | None = None
    seed: int = 0
    device: str = "cpu"
    threads: int | None = None
    compile: bool = False
    resume: bool = False
