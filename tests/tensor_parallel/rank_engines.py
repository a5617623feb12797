"""Engines whose model is divided among ranks, and what is left of their processes."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from specserve_workbench.testing.engines import make_engine, plain_run, run_requests

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest
    from specserve_tensor_parallel.processes import Rank
    from specserve_workbench.testing.engines import Output

NAME = "tensor_parallel"
NEAR = {"rtol": 1e-3, "atol": 1e-3}


def rank_options(ranks: int, beside: Sequence[str] = (), tables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Options of an engine with these plugins beside; `tables`: their options."""
    return {"plugins": (NAME, *beside), "plugin_options": {NAME: {"ranks": ranks}, **(tables or {})}}


@contextmanager
def ranks_of(
    model: Path | str,
    ranks: int = 2,
    beside: Sequence[str] = (),
    tables: Mapping[str, Any] | None = None,
    **options: Any,
) -> Iterator[Engine]:
    """An engine on so many ranks, all of which have ended afterwards."""
    engine = make_engine(model, **rank_options(ranks, beside, tables), **options).engine
    pids = [rank.process.pid for rank in others_of(engine)]
    try:
        yield engine
    finally:
        engine.runner.close()
        assert not running(pids), "a rank outlives its engine"


def others_of(engine: Engine) -> list[Rank]:
    """Ranks 1 and up."""
    ranks: list[Rank] = engine.runner.ranks.all  # type: ignore[attr-defined]
    return ranks


def running(pids: Sequence[int]) -> list[int]:
    """Those that have not ended."""
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def assert_same_as_one_rank(
    model: Path | str, requests: Sequence[GenerateRequest], ranks: int = 2, **options: Any
) -> None:
    """Tokens; log-probabilities nearly so, as the sums have another order."""
    expected = plain_run(model, requests, **options)
    with ranks_of(model, ranks, **options) as engine:
        got = run_requests(engine, requests)
    assert got.tokens() == expected.tokens()
    assert sum(len(tokens) for tokens in got.tokens().values()) > 8 * len(requests)
    for request_id, output in expected.outputs.items():
        torch.testing.assert_close(probabilities(got.outputs[request_id]), probabilities(output), **NEAR)


def probabilities(output: Output) -> torch.Tensor:
    return torch.tensor([each.logprob for each in (*output.logprobs, *output.prompt_logprobs)])
