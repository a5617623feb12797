"""What drafts of known quality bring on a model of random weights: engine steps of one request without drafts, with
chains that are all accepted, and with the chains of a real edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.lib.decoding import start_all
from benchmarks.lib.shapes import model_directory
from benchmarks.lib.timing import seconds_of
from benchmarks.lib.workload import DTYPE, greedy
from specserve.types import Draft
from specserve_workbench.testing.drafters import OracleDrafter, ScriptedDrafter
from specserve_workbench.testing.engines import make_engine, run_requests

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.lib.report import Options
    from specserve.batch.request import Request
    from specserve.engine.engine import Engine

STEPS = 8
EDIT = (
    (6, 2), (12, 1), (6, 4), (22, 5), (8, 2), (31, 0), (5, 0), (2, 0), (6, 2), (8, 3), (20, 20), (25, 23), (11, 9),
    (11, 11), (15, 6), (29, 0), (7, 4), (29, 12), (19, 19), (21, 21), (26, 4), (29, 27),
)  # fmt: skip
"""Drafted and accepted tokens by step: of n-gram drafts while the demo model copied a file with one name changed."""


class EditDrafter(ScriptedDrafter):
    """The chains of `EDIT` in turn: right as far as they were accepted."""

    name = "edit"

    def __init__(self, outputs: Mapping[str, Sequence[int]], vocab_size: int) -> None:
        super().__init__(outputs)
        self.vocab_size, self.count = vocab_size, 0

    def draft(self, request: Request, limit: int) -> Draft:
        drafted, accepted = EDIT[self.count % len(EDIT)]
        self.count += 1
        right = self.future(request)[:drafted]
        assert limit >= drafted == len(right), "nothing cuts a chain"
        wrong = ((token + 1) % self.vocab_size for token in right[accepted:])
        return Draft(tokens=(*right[:accepted], *wrong))


def steps(name: str, options: Options, context: int, width: int) -> dict[str, Callable[[], float]]:
    """Seconds for a token: `plain`; `accepted`, with `width` draft tokens in each step; and `edit`."""
    of_edit = sum(accepted + 1 for _, accepted in EDIT)
    num_tokens = max((STEPS + 3) * (width + 1), of_edit + 2 + max(drafted for drafted, _ in EDIT))
    request = greedy("r", tuple((7 * at) % 300 for at in range(context)), num_tokens)

    def engine(drafter: ScriptedDrafter | None = None) -> Engine:
        return make_engine(
            model_directory(name), drafter, default_plugins=True, prefix_cache=False, dtype=DTYPE,
            threads=options.threads, max_model_len=1024, max_num_seqs=2, kv_memory="128M",
        ).engine  # fmt: skip

    plain = engine()
    outputs = run_requests(plain, [request]).tokens()
    edit = EditDrafter(outputs, plain.runner.model.vocab_size)
    right, editing = engine(OracleDrafter(outputs, width)), engine(edit)

    def per_token(engine: Engine, num_steps: int, expected: int) -> float:
        edit.count = 0
        start_all(engine, [request])
        engine.step()
        before = engine.requests["r"].num_generated
        seconds = seconds_of(lambda: [engine.step() for _ in range(num_steps)])
        count = engine.requests["r"].num_generated - before
        assert count == expected, "greedy text is the same with drafts"
        engine.abort("r")
        return seconds / count

    return {
        "plain": lambda: per_token(plain, STEPS, STEPS),
        "accepted": lambda: per_token(right, STEPS, STEPS * (width + 1)),
        "edit": lambda: per_token(editing, len(EDIT), of_edit),
    }
