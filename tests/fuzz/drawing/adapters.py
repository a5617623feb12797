"""Draws LoRA adapters and what is done to them while requests run: replaced, unloaded, loaded again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.plans import AdapterPlan, Event

if TYPE_CHECKING:
    import random

LAST_STEP = 40


def draw_adapters(rng: random.Random) -> tuple[tuple[AdapterPlan, ...], tuple[Event, ...]]:
    if rng.random() < 0.6:
        return (), ()
    names = [f"a{i}" for i in range(rng.randint(1, 4))]
    events: list[Event] = []
    versions = dict.fromkeys(names, 1)
    for name in names:
        if rng.random() < 0.4:
            versions[name] += 1
            events.append(Event(at=rng.randrange(LAST_STEP), do="replace", name=name))
        if rng.random() < 0.3:
            at = rng.randrange(LAST_STEP)
            events.append(Event(at=at, do="unload", name=name))
            events.append(Event(at=at + rng.randrange(10), do="load", name=name))
    adapters = (AdapterPlan(name=n, seeds=tuple(rng.randrange(1 << 30) for _ in range(versions[n]))) for n in names)
    return tuple(adapters), tuple(sorted(events, key=lambda event: event.at))
