"""What steps are padded to, and which graph serves a step."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from specserve.api import AttentionBackend, GraphMode, Phase, Sampler
    from specserve_graphs.buckets import Buckets

MODES: Mapping[str, tuple[GraphMode, ...]] = {"full": ("full", "piecewise"), "piecewise": ("piecewise",)}
"""What a decode or verify step, or a pass of a draft model, is tried with, in this order, by --graphs."""


class StepKey(NamedTuple):
    """`specserve_graphs.library.GraphKey` of the target's steps."""

    mode: GraphMode
    rows: int
    requests: int
    """0 in piecewise graphs, whose attention is not recorded."""
    hidden_layers: tuple[int, ...]
    lora_segments: int
    lora_rank: int
    greedy: bool
    """Does it compute greedy tokens?"""
    backend: AttentionBackend


class GraphSettings(NamedTuple):
    """`rows` and `requests`: what steps are padded to, and what plans have room for. `max_rows`: of any step;
    `max_rows_of_request`: of a request in a decode or verify step. `generated`: the phase of generated positions.
    `greedy_sampler`: where graphs may compute greedy tokens."""

    mode: GraphMode
    rows: Buckets
    requests: Buckets
    max_rows: int
    max_rows_of_request: int
    generated: Phase
    greedy_sampler: Sampler | None
    block_size: int

    def decode_buckets(self) -> Iterator[tuple[int, int]]:
        """(rows, requests) of all decode and verify steps that there may be."""
        for rows_before, rows in pairwise((0, *self.rows.sizes)):
            for requests_before, requests in pairwise((0, *self.requests.sizes)):
                if requests_before < rows and rows_before < requests * self.max_rows_of_request:
                    yield rows, requests

    @property
    def without(self) -> str:
        """Which steps no bucket holds."""
        if self.rows.largest >= self.max_rows:
            return ""
        return f"steps of {self.rows.largest + 1} to {self.max_rows} rows run without a graph"
