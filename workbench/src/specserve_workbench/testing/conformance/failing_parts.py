"""Lets the parts of a plugin fail now and then, before they have done their work or after it.

Knows what the engine's guards hold, and no pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from specserve.guards.planner import GuardedPlanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from specserve.engine.engine import Engine
    from specserve.protocols import Drafter, DraftPlanner

EVERY = 3
"""Seldom enough that no part is switched off, which takes faults in a row."""
DRAFTER_METHODS = ("propose", "observe_step", "observe_idle")
PLANNER_METHODS = ("limits", "choose", "learn")


class Failing:
    """`part` with methods that fail in every third call."""

    def __init__(self, part: object, methods: Iterable[str]) -> None:
        self.part, self.methods = part, frozenset(methods)
        self.num_calls = self.num_faults = 0

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.part, name)
        return self.failing(member) if name in self.methods else member

    def failing(self, method: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            self.num_calls += 1
            if self.num_calls % EVERY:
                return method(*args)
            self.num_faults += 1
            if self.num_faults % 2:
                method(*args)
            raise OSError("a part of the plugin fails, by intention")

        return call


def let_parts_fail(engine: Engine, plugin: str, beside: str) -> dict[str, Failing]:
    """The plugin's drafters, observers and planner, by what they are; not the drafter named `beside`."""
    found: dict[str, Failing] = {}
    for guard in engine.drafting.guards:
        if guard.name != beside:
            failing = found["drafter"] = Failing(guard.drafter, DRAFTER_METHODS)
            guard.drafter = cast("Drafter", failing)
    for observer in engine.parts.guarded_observers:
        if observer.observer.observe is not None and observer.observe_part.plugin == plugin:
            failing = found["observer"] = Failing(observer.observer, ["observe"])
            observer.observer = failing
    planner = engine.planner
    if isinstance(planner, GuardedPlanner) and planner.plugin == plugin:
        failing = found["planner"] = Failing(planner.planner, PLANNER_METHODS)
        planner.planner = cast("DraftPlanner", failing)
    return found
