"""Whatever part of a plugin is handed a request can read it and not change it; who tries is named, with its line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from covering import covering
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve.protocols import Drafter, DrafterNeeds, DraftPlanner, LogitsProcessor
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from specserve.batch.request import Request

CHANGES: dict[str, Callable[[Any], object]] = {
    "an item of tokens": lambda request: request.tokens.__setitem__(-1, 3),
    "an item of the prompt": lambda request: request.tokens.__setitem__(0, 3),
    "a slice of tokens": lambda request: request.tokens.__setitem__(slice(0, 2), []),
    "tokens, appended": lambda request: request.tokens.append(3),
    "tokens, popped": lambda request: request.tokens.pop(),
    "tokens, extended": lambda request: request.tokens.extend([3]),
    "tokens, in place": lambda request: request.tokens.__iadd__([3]),
    "tokens, doubled": lambda request: request.tokens.__imul__(2),
    "tokens, sorted": lambda request: request.tokens.sort(),
    "tokens, reversed": lambda request: request.tokens.reverse(),
    "tokens, cleared": lambda request: request.tokens.clear(),
    "tokens, replaced": lambda request: setattr(request, "tokens", [1, 2, 3]),
    "max_len": lambda request: setattr(request, "max_len", 9),
    "max_len, deleted": lambda request: delattr(request, "max_len"),
    "seed": lambda request: setattr(request, "seed", 9),
    "params": lambda request: setattr(request, "params", None),
    "a field of params": lambda request: setattr(request.params, "temperature", 0.0),
    "computed": lambda request: setattr(request, "computed", 0),
    "blocks": lambda request: request.blocks.clear(),
    "hashes": lambda request: request.hashes.append(b""),
    "processors": lambda request: request.processors.append(None),
    "finish_reason": lambda request: setattr(request, "finish_reason", "stop"),
    "draft": lambda request: setattr(request, "draft", None),
    "figures": lambda request: request.acceptance_histogram.append(1),
    "figures by drafter": lambda request: request.by_drafter.update(mine=(9, 9)),
}


class Meddler(Drafter, DraftPlanner):
    """Every part of a plugin in one; `where` is the method that changes the requests that it sees."""

    name = "meddler"
    needs = DrafterNeeds(every_step=True)

    def __init__(self, where: str, change: Callable[[Any], object]) -> None:
        self.where, self.change, self.num_tries = where, change, 0

    def meddle(self, where: str, *requests: Request) -> None:
        if where == self.where:
            self.num_tries += len(requests)
            for request in requests:
                self.change(request)

    def start(self, request: Request) -> None:
        self.meddle("start", request)

    def stop(self, request: Request) -> None:
        self.meddle("stop", request)

    def propose(self, batch: Any, output: Any, verdict: Any, limits: Any) -> list[None]:
        self.meddle("propose", *(span.request for span in batch.spans))
        return [None] * len(limits)

    def limits(self, requests: Any) -> list[int]:
        self.meddle("limits", *requests)
        return [8] * len(requests)

    def choose(self, requests: Any, budget: int, base_rows: int) -> list[int]:
        self.meddle("choose", *requests)
        return [0] * len(requests)

    def learn(self, batch: Any, verdict: Any, seconds: float) -> None:
        self.meddle("learn", *(span.request for span in batch.spans))

    def observe(self, batch: Any, verdict: Any) -> None:
        self.meddle("observe", *(span.request for span in batch.spans))

    def metrics(self) -> list[Any]:
        return []

    @hookimpl
    def make_drafter(self) -> Meddler:
        return self

    @hookimpl
    def make_observer(self) -> Meddler:
        return self

    @hookimpl
    def make_draft_planner(self) -> Meddler:
        return self


def as_plugin(meddler: Meddler) -> InProcessPlugin:
    features = ("draft.chain", "draft.tree", "observer.metrics", "planner.adaptive")
    return InProcessPlugin(meddler, PluginDeclaration(name="meddler", provides=dict.fromkeys(features, "a test's")))


@pytest.fixture(scope="module")
def expected(toy_model: Path) -> dict[str, Any]:
    return run(toy_model, varied_requests(6)).decided()


@pytest.mark.parametrize("what", CHANGES)
def test_a_drafter_changes_no_answer(
    toy_model: Path, expected: dict[str, Any], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    meddler = Meddler("propose", CHANGES[what])
    outcome = run(toy_model, varied_requests(6), extra={"meddler": as_plugin(meddler)})
    assert outcome.decided() == expected
    assert meddler.num_tries
    assert outcome.metrics.drafter_faults["meddler", "raised AttributeError"], "nobody is named"
    if what != "a field of params":  # msgspec's own: "immutable type"
        assert "a plugin reads requests and may not change them" in caplog.text
    assert "drafter meddler" in caplog.text
    assert "test_requests_are_read_only.py" in caplog.text


@covering(
    where=["start", "stop", "propose", "limits", "learn", "observe"], what=["tokens, appended", "max_len", "computed"]
)
def test_no_part_changes_an_answer(
    toy_model: Path, expected: dict[str, Any], where: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    meddler = Meddler(where, CHANGES[what])
    outcome = run(toy_model, varied_requests(6), extra={"meddler": as_plugin(meddler)})
    assert outcome.decided() == expected
    assert meddler.num_tries
    assert "meddler" in caplog.text
    assert "may not change them" in caplog.text


class MeddlingProcessor(LogitsProcessor):
    @hookimpl
    def logits_processors(self) -> list[MeddlingProcessor]:
        return [self]

    def start(self, request: Request, vocab_size: int) -> None:
        if request.id == "a":
            request.max_len = 5


def test_a_processor_that_changes_a_request_ends_it_and_no_other(toy_model: Path) -> None:
    declared = PluginDeclaration(name="mine", provides={"logits.processor": "a test's"})
    engine = make_engine(toy_model, extra={"mine": InProcessPlugin(MeddlingProcessor(), declared)}).engine
    outcome = run_requests(engine, [toy_request(name, (1, 2, 3), max_tokens=6, ignore_eos=True) for name in "ab"])
    assert len(outcome.outputs["b"].tokens) == 6
    (told,) = outcome.outputs["a"].steps
    assert told.error is not None
    assert "the logits processor of mine raised AttributeError: request.max_len is the engine's" in told.error


def test_the_biases_of_a_request_cannot_be_changed(toy_model: Path) -> None:
    biased = [toy_request("a", (1, 2, 3), max_tokens=6, logit_bias={7: 50.0})]
    meddler = Meddler("start", lambda request: request.params.logit_bias.clear())
    outcome = run(toy_model, biased, extra={"meddler": as_plugin(meddler)})
    assert outcome.tokens()["a"] == [7] * 6
    assert outcome.metrics.drafter_faults["meddler", "raised AttributeError"]


def test_what_is_read_from_a_request_is_the_readers_own(toy_model: Path) -> None:
    engine = make_engine(toy_model).engine
    request = engine.add(toy_request("a", (1, 2, 3)))
    for copy in (request.tokens[:], [*request.tokens], [*request.tokens, 4], request.tokens.copy()):
        copy.append(9)
        assert copy[:3] == [1, 2, 3]
    assert request.tokens == [1, 2, 3]
