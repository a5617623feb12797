"""What drafts of known quality bring on a model of random weights: engine steps of one request without drafts, and
with chains that are all accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.lib.decoding import start_all
from benchmarks.lib.shapes import model_directory
from benchmarks.lib.timing import seconds_of
from benchmarks.lib.workload import DTYPE, greedy
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, run_requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.lib.report import Options
    from specserve.engine.engine import Engine

STEPS = 8


def steps(name: str, options: Options, context: int, width: int) -> dict[str, Callable[[], float]]:
    """Seconds for a token, `plain` and `accepted`: with `width` draft tokens in each step."""
    each_step = width + 1
    request = greedy("r", tuple((7 * at) % 300 for at in range(context)), (STEPS + 3) * each_step)

    def engine(drafter: OracleDrafter | None = None) -> Engine:
        return make_engine(
            model_directory(name), drafter, default_plugins=True, prefix_cache=False, dtype=DTYPE,
            threads=options.threads, max_model_len=1024, max_num_seqs=2, kv_memory="128M",
        ).engine  # fmt: skip

    plain = engine()
    right = engine(OracleDrafter(run_requests(plain, [request]).tokens(), width))

    def per_token(engine: Engine, tokens_of_step: int) -> float:
        start_all(engine, [request])
        engine.step()
        before = engine.requests["r"].num_generated
        seconds = seconds_of(lambda: [engine.step() for _ in range(STEPS)])
        count = engine.requests["r"].num_generated - before
        assert count == STEPS * tokens_of_step, "greedy text is the same with drafts"
        engine.abort("r")
        return seconds / count

    return {"plain": lambda: per_token(plain, 1), "accepted": lambda: per_token(right, each_step)}
