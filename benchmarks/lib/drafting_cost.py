"""What drafting costs by itself: a step whose drafts are made and never verified, against a plain step."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from benchmarks.lib.alternating import decode_in_turns
from benchmarks.lib.forwards import weight_bytes
from benchmarks.lib.shapes import model_directory
from benchmarks.lib.workload import demo_engine, seeded
from specserve.speculation.fixed_width import FixedWidthPlanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.lib.report import Options
    from specserve.batch.request import Request
    from specserve.models.draft_head import DraftHead
    from specserve.types import Draft

CONTEXT = 256


class NothingVerified(FixedWidthPlanner):
    """Wants drafts and verifies none."""

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | int | None]:
        return [None] * len(requests)


class DraftingCost(NamedTuple):
    """Seconds of a plain step, seconds more with drafts, and the head's bytes as a share of the target's."""

    plain: float
    drafting: float
    share: float


def drafting_cost(options: Options, model: str, head: str, steps: int) -> DraftingCost:
    """One request; `steps` draft tokens in every step."""
    path = str(model_directory(model))
    settings = {"eagle": {"model": head, "steps": steps}}
    plain = demo_engine(options, model=path).engine
    eagle = demo_engine(options, model=path, plugins=("eagle",), plugin_options=settings).engine
    drafting = cast("Any", eagle.drafting)
    eagle.planner = eagle.scheduler.planner = drafting.planner = NothingVerified(32)
    prompt = tuple(range(CONTEXT))
    measured = decode_in_turns(
        {"plain": lambda: plain, "eagle": lambda: eagle},
        lambda n: [seeded(f"d{n}", prompt, 0.0, n)],
        options.rounds(5, 1),
    )
    seconds = {who: median(one.seconds / one.num_outputs for one in rounds) for who, rounds in measured.items()}
    share = head_bytes(drafting.guards[0].drafter.model.head) / weight_bytes(plain.runner.model)
    return DraftingCost(seconds["plain"], seconds["eagle"] - seconds["plain"], share)


def head_bytes(head: DraftHead) -> int:
    """The weights that a pass reads."""
    decoder = head.decoder
    linears = [*decoder.projections.values()]
    if decoder.lm_head not in linears:
        linears.append(decoder.lm_head)
    return sum(linear.in_features * linear.out_features for linear in linears) * decoder.dtype.itemsize
