"""Engines whose native draft passes are looked at, and called with changed arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_engines import drafter_of, eagle_engine

from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[list[Any]], None]


def serve_examined(target: Path, draft: Path, examined: Callable[[Any], Any], **settings: int) -> None:
    """Two requests. `examined` makes the pass that drafts, with `num_calls`, of the drafter's own. `settings`: of
    eagle."""
    engine = eagle_engine(target, draft, settings=settings, default_plugins=True, block_size=4)
    drafter = drafter_of(engine)
    drafter.passes = passes = examined(drafter.passes)
    for name, prompt in (("a", range(9)), ("b", range(14))):
        engine.add(toy_request(name, prompt, max_tokens=8, ignore_eos=True))
    while engine.has_work:
        engine.step()
    assert passes.num_calls > 2
    assert not engine.metrics.drafter_faults


def changed(place: int, value: Callable[[Any], Any]) -> Change:
    def change(arguments: list[Any]) -> None:
        arguments[place] = value(arguments[place])

    return change
