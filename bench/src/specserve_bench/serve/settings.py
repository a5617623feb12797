"""What a run of `bench serve` was asked to do, as it stands in the results."""

from __future__ import annotations

import msgspec

from specserve_bench.figures.objectives import Objectives


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    api: str = "completions"
    model: str | None = None
    """None: the first that the server lists."""
    prompts: tuple[str, ...] = ("code", "edit", "chat", "json")
    num_requests: int = 64
    concurrency: int | None = 8
    """Requests under way at most; None: no limit."""
    rate: float | None = None
    """Requests per second; None: as they are answered."""
    burstiness: float = 1.0
    seed: int = 0
    """Of prompts that are made, and of arrivals."""
    input_tokens: int = 256
    """Of random prompts."""
    max_tokens: int = 128
    temperature: float | None = None
    ignore_eos: bool = False
    num_warm_up: int = 4
    speculation: bool = False
    """Ask for what each step drafted, which makes answers longer."""
    objectives: Objectives | None = None
