"""Several engines that decode the same requests in turns, so that a load on the machine affects all of them alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from benchmarks.lib.decoding import Decoded, decode_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest

Engines: TypeAlias = "dict[str, Callable[[], Engine]]"
MakeRequests: TypeAlias = "Callable[[int], list[GenerateRequest]]"
"""The requests of a round."""


def decode_in_turns(engines: Engines, make_requests: MakeRequests, rounds: int) -> dict[str, list[Decoded]]:
    """By engine, the sums of every round; a warm-up round is left out."""
    measured: dict[str, list[Decoded]] = {name: [] for name in engines}
    for n in range(rounds + 1):
        running = {name: decode_in_slices(engine(), make_requests(n)) for name, engine in engines.items()}
        for name, decoded in sums_in_turns(running).items():
            measured[name].append(decoded)
    return {name: values[1:] for name, values in measured.items()}


def sums_in_turns(slices: Mapping[str, Iterator[Decoded]]) -> dict[str, Decoded]:
    """The sums of each engine's slices, which are taken in turns until all have ended."""
    running, sums = dict(slices), dict.fromkeys(slices, Decoded())
    while running:
        for name in list(running):
            part = next(running[name], None)
            if part is None:
                del running[name]
            else:
                sums[name] = sums[name].plus(part)
    return sums
