"""Random plans: `plan_of(seed, number)` is the same plan on every machine, `draw_requests` fills in the requests.

Every part draws from a random stream of its own, so that a change to one kind of part leaves the others as they were.
"""

from __future__ import annotations

import random

from fuzz.drawing.adapters import draw_adapters
from fuzz.drawing.deployment import deployed
from fuzz.drawing.engines import draw_engine
from fuzz.drawing.models import draw_demo, draw_model
from fuzz.drawing.self_drafts import with_self_drafts
from fuzz.plans import Plan


def stream(seed: int, number: int, part: str) -> random.Random:
    return random.Random(f"{seed}/{number}/{part}")


def plan_of(seed: int, number: int) -> Plan:
    """The plan of one trial, without its requests."""
    rng = stream(seed, number, "plan")
    models = stream(seed, number, "model")
    model = draw_demo(models) if rng.random() < 0.02 else draw_model(models)
    mode = rng.choice(("mixed", "mixed", "mixed", "pressure", "turns", "choices"))
    engine = draw_engine(stream(seed, number, "engine"), model, mode)
    engine = deployed(stream(seed, number, "deployment"), model, engine)
    engine = with_self_drafts(stream(seed, number, "uno"), model, engine)
    adapters, events = draw_adapters(stream(seed, number, "adapters"))
    return Plan(
        seed=seed,
        number=number,
        mode=mode,
        model=model,
        engine=engine,
        adapters=adapters,
        events=events,
        transformers=rng.random() < 0.6,
    )
