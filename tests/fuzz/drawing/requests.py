"""Draws the requests of a plan, one after the other, each with the answers of those before at hand.

Modes: `mixed`; `pressure`, many long answers in a small cache; `turns`, dialogues that go on; `choices`, the same
prompt several times with the seeds that the server gives the choices of n > 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fuzz.drawing import stream
from fuzz.drawing.endings import interrupted
from fuzz.drawing.params import MOST_TOKENS, Likely, draw_params
from fuzz.drawing.prompts import Prompts
from fuzz.plans import RequestPlan, changed
from fuzz.weights import poisoned
from specserve.sampling.seeds import choice_seed
from specserve.types import SpeculationParams
from specserve_workbench.testing.requests import STRUCTURED

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fuzz.drawing.prompts import Tokens
    from fuzz.plans import Plan

COUNTS = (1, 2, 3, 5, 8, 8, 12, 16, 24)


class World(NamedTuple):
    """What the requests are drawn for."""

    vocab_size: int
    longest: int
    """Tokens that one request can have."""
    accepts: Callable[[RequestPlan], bool]
    answer: Callable[[RequestPlan], Tokens]
    """What the request says, served alone."""
    decode: Callable[[Tokens, bool], str]
    """Text of tokens; the flag leaves special tokens out."""


def draw_requests(plan: Plan, world: World) -> None:
    """`world.answer` is called with every request that was drawn; again where it was changed because of its answer."""
    rng = stream(plan.seed, plan.number, "requests")
    longest, vocab_size = world.longest - 1, world.vocab_size
    prefixes = [tuple(rng.randrange(vocab_size) for _ in range(rng.randint(2, max(2, longest - 4)))) for _ in range(3)]
    prompts = Prompts(vocab_size, longest, plan.engine.block_size, prefixes, [])
    requests: list[RequestPlan] = []
    for i in range(rng.choice(COUNTS)):
        own = stream(plan.seed, plan.number, f"request {i}")
        request = draw_request(own, plan, world, prompts, i, requests)
        if not world.accepts(request):
            continue
        answer = world.answer(request)
        if len(answer) > 2 and own.random() < 0.3:
            other = changed(request, params=interrupted(own, request.params, answer, world.decode))
            if world.accepts(other):
                request, answer = other, world.answer(other)
        prompts.said.append((request.prompt, answer))
        requests.append(request)


def draw_request(
    rng: random.Random, plan: Plan, world: World, prompts: Prompts, i: int, before: list[RequestPlan]
) -> RequestPlan:
    if plan.mode == "choices" and (first := [r for r in before if r.id == f"r{i - i % 4}" != f"r{i}"]):
        return next_choice(first[0], f"r{i}", i % 4)
    turn = plan.mode == "turns" and prompts.said and rng.random() < 0.8
    prompt = prompts.next_turn(rng) if turn else prompts.draw(rng)
    if plan.mode == "pressure":
        prompt = prompt[: max(1, world.longest // 4)]
    prompt = poison_or_not(rng, prompt, sorted(poisoned(plan.model)))
    said = [answer for _, answer in prompts.said if answer]
    tokens = rng.choice(said) if said else tuple(rng.randrange(world.vocab_size) for _ in range(4))
    room = world.longest - len(prompt)
    kinds = sorted(STRUCTURED) if plan.engine.grammar else ()
    params = draw_params(rng, world.vocab_size, room, Likely(tokens, world.decode(tokens, False)), kinds)
    if plan.mode == "pressure":
        params = changed(params, max_tokens=min(MOST_TOKENS, room), min_tokens=0, ignore_eos=rng.random() < 0.8)
    fields = draw_circumstances(rng, plan)
    fields["speculation"] = by_some_drafters(stream(plan.seed, plan.number, f"drafters of {i}"), plan, **fields)
    if turn:
        fields |= {
            "salt": "",
            "arrives": i * rng.choice((3, 10, 25)),
            "adapter": before[-1].adapter,
        }
    return RequestPlan(id=f"r{i}", prompt=prompt, params=params, **fields)


def draw_circumstances(rng: random.Random, plan: Plan) -> dict[str, Any]:
    """When it comes, under what, and whether it is aborted."""
    own_limit = SpeculationParams(max_draft_tokens=rng.choice((0, 1, 3, 100)))
    return {
        "speculation": rng.choice((*[SpeculationParams()] * 5, SpeculationParams(enabled=False), own_limit)),
        "priority": rng.choice((0, 0, 0, -1, 1, 5)),
        "adapter": rng.choice((None, *(adapter.name for adapter in plan.adapters))),
        "salt": rng.choice(("", "", "", "s1", "s2")),
        "arrives": rng.choice((0, 0, rng.randrange(20), rng.randrange(60), rng.randrange(150))),
        "aborted_after": rng.randrange(12) if rng.random() < 0.1 else None,
        "again": rng.random() < 0.5,
    }


def by_some_drafters(rng: random.Random, plan: Plan, *, speculation: SpeculationParams, **_: Any) -> SpeculationParams:
    """Three requests in ten name their drafters, or none."""
    names = plan.engine.drafters
    if not names or rng.random() < 0.7:
        return speculation
    return changed(speculation, drafters=tuple(rng.sample(names, rng.randint(0, len(names)))))


def next_choice(first: RequestPlan, request_id: str, choice: int) -> RequestPlan:
    """The same request, as the server sends choice number `choice` of it."""
    params = changed(first.params, seed=choice_seed(first.params.seed, 0, choice))
    return changed(first, id=request_id, params=params, aborted_after=None)


def poison_or_not(rng: random.Random, prompt: Tokens, bad: list[int]) -> Tokens:
    """Of a poisoned model three requests in ten read a bad token, the others do not."""
    if not bad:
        return prompt
    clean = [1 if token in bad else token for token in prompt]
    if rng.random() < 0.3:
        clean[rng.randrange(len(clean))] = rng.choice(bad)
    return tuple(clean)
