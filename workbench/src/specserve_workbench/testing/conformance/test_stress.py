"""An installed plugin under stress: requests give the tokens that they give alone, and nothing of them stays behind."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import torch

from specserve.errors import ConfigError
from specserve.host_memory import resident_memory
from specserve.protocols import ProcessorState
from specserve.sampling.edits import TorchRow
from specserve_workbench.testing.conformance import stress
from specserve_workbench.testing.conformance.cases import (
    DECIDES,
    DRAFTS,
    build,
    drafter_named,
    features_of,
    plans,
    requests_for,
    verifying_everything,
)
from specserve_workbench.testing.conformance.failing_parts import let_parts_fail
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import run_requests, set_planner, verify_everything
from specserve_workbench.testing.requests import (
    TOY_VOCAB,
    structured_requests,
    toy_request,
    varied_requests,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from specserve.declare import InProcessPlugin
    from specserve.engine.engine import Engine
    from specserve.types import Draft, RequestOutput
    from specserve_workbench.testing.conformance.cases import Options, References, Settings
    from specserve_workbench.testing.engines import Run

    Start = Callable[..., Engine]
    Note = Callable[[str], None]

SEED = 20
STATELESS = "It changes its state: some rows are edited twice or for nothing; change it in commit."
FAILING = tuple(f"{stress.FAULTY} {i}" for i in range(4))
MANY, WARM, TOGETHER = 10_000, 2_000, 32
ROUNDS = 2
BYTES = 2_000
"""Of memory for each request at most, while caches of what was seen are still filling."""


@pytest.fixture
def drafts(plugin: str) -> bool:
    return any(token in features_of(plugin) for token in DRAFTS)


@pytest.fixture
def start(plugin: str, toy_model: Path, plugin_options: Options, drafts: bool) -> Start:
    """`start(outputs)`: an engine with the plugin; drafts that are often wrong where it drafts none itself."""

    def begin(
        outputs: Mapping[str, Sequence[int]], settings: Settings | None = None, **extra: InProcessPlugin
    ) -> Engine:
        if not drafts and "rubbish" not in extra:
            noise = NoisyDrafter(
                {**dict.fromkeys(FAILING, ()), **outputs}, p=0.7, max_width=8, vocab_size=TOY_VOCAB, seed=SEED
            )
            extra["noise"] = drafter_named("noise", noise)
        try:
            planner = verifying_everything((plugin,))
            settings = {"allow_undeclared": True, **(settings or {})}
            return build(toy_model, (plugin,), plugin_options, planner | extra, settings)
        except ConfigError as error:
            pytest.skip(str(error))

    return begin


@pytest.fixture
def expected(plugin: str, toy_model: Path, plugin_options: Options, references: References, drafts: bool) -> Run:
    """The kit's requests without drafts."""
    is_needed = not drafts or DECIDES in features_of(plugin)
    try:
        requests = requests_for(build(toy_model, (plugin,), plugin_options, {}, {}))
        plain, _ = references.run((plugin,) if is_needed else (), {}, requests)
    except ConfigError as error:
        pytest.skip(str(error))
    return plain


def faults_of(engine: Engine) -> str:
    found = [*engine.metrics.drafter_faults, *engine.metrics.faults.counts]
    return ", ".join(str(key) for key in found if stress.FAULTY not in key and "rubbish" not in key)


def test_random_limits(start: Start, expected: Run, plugin: str, note: Note) -> None:
    if plans((plugin,)):
        pytest.skip("it has a planner of its own")
    engine = start(expected.tokens())
    set_planner(engine, stress.RandomPlanner(SEED))
    assert run_requests(engine, requests_for(engine)).decided() == expected.decided()
    assert not faults_of(engine)
    note(f"{engine.metrics.num_accepted_tokens} of {engine.metrics.num_draft_tokens} draft tokens accepted")


def test_rubbish_beside_it(start: Start, expected: Run, note: Note) -> None:
    rubbish = stress.RubbishDrafter(expected.tokens(), TOY_VOCAB, SEED)
    engine = start(expected.tokens(), rubbish=drafter_named("rubbish", rubbish))
    for guard in engine.drafting.guards:
        guard.fault_limit = 1 << 30
    assert run_requests(engine, requests_for(engine)).decided() == expected.decided()
    assert not faults_of(engine)
    refused = sum(count for (name, _), count in engine.metrics.drafter_faults.items() if name == "rubbish")
    note(f"{refused} drafts of another drafter refused, {engine.metrics.num_accepted_tokens} draft tokens accepted")


def test_faults_beside_it(start: Start, expected: Run, note: Note) -> None:
    """Parts of another plugin fail: only the requests whose processor fails end."""
    engine = start(expected.tokens(), faulty=stress.faulty_plugin())
    failing = [toy_request(name, range(9), max_tokens=20, ignore_eos=True) for name in FAILING]
    outcome = run_requests(engine, [*failing, *requests_for(engine)])
    decided = outcome.decided()
    assert {name: decided[name] for name in expected.outputs} == expected.decided()
    assert [outcome.outputs[name].finish_reason for name in FAILING] == ["error"] * 4
    assert not faults_of(engine)
    note(f"{engine.metrics.faults.counts.total()} faults of another plugin")


def test_faults_in_it(start: Start, expected: Run, plugin: str, note: Note) -> None:
    """Its own drafters, planner and observer of steps fail now and then: that costs draft tokens and figures alone."""
    engine = start(expected.tokens())
    parts = let_parts_fail(engine, plugin, beside="noisy")
    if not parts:
        pytest.skip("it has no drafter, planner or observer of steps")
    if "planner" not in parts:
        verify_everything(engine, 8)
    assert run_requests(engine, requests_for(engine)).decided() == expected.decided()
    assert not engine.metrics.drafters_disabled
    faults = {what: part.num_faults for what, part in parts.items()}
    assert all(faults.values()), f"not called often enough to fail: {faults}"
    told = ", ".join(f"{count} of its {what}" for what, count in faults.items())
    note(f"faults: {told}; {engine.metrics.num_accepted_tokens} draft tokens accepted")


def test_idle_steps(start: Start, expected: Run, plugin: str, note: Note) -> None:
    """Its drafter drafts the same where it is told of idle steps afterwards, and where it is told of each at once."""
    if plans((plugin,)):
        pytest.skip("it has a planner of its own")
    found: list[dict[tuple[str, int], Draft]] = []
    for told_later in (True, False):
        engine, planner = start(expected.tokens()), stress.SeldomPlanner()
        guards = [guard for guard in engine.drafting.guards if guard.observes_idle]
        if not guards:
            pytest.skip("it has no drafter with observe_idle")
        for guard in guards:
            guard.observes_idle = told_later
        set_planner(engine, planner)
        assert run_requests(engine, requests_for(engine)).decided() == expected.decided()
        assert not faults_of(engine)
        found.append(planner.drafts)
    assert found[0] == found[1], "it drafts otherwise where it is told of idle steps afterwards, by observe_idle"
    note(f"{len(found[0])} drafts are the same")


def test_aborts(start: Start, expected: Run, plugin: str, note: Note) -> None:
    engine = start(expected.tokens())
    if not plans((plugin,)):
        verify_everything(engine, 8)
    found = stress.run_with_aborts(engine, requests_for(engine), SEED)
    assert found == {name: expected.tokens()[name] for name in found}
    assert run_requests(engine, requests_for(engine)).decided() == expected.decided()
    assert not faults_of(engine)
    note(f"{engine.metrics.request_success['abort']} requests aborted")


def test_edits_are_what_apply_does(start: Start, note: Note) -> None:
    """A state's two methods, of which native samplers call one and torch the other, along a path that they allow.
    Neither changes the state: rows of draft tokens that are rejected are edited, too, and some rows twice."""
    engine, rows = start({}), 0
    generator = torch.Generator().manual_seed(SEED)
    for wire in [*varied_requests(24), *structured_requests(engine.parts.limits.output_kinds)]:
        engine.add(wire)
        request = engine.requests[wire.request_id]
        for state in request.processors:
            name, overridden = type(state).__name__, type(state).edit is not ProcessorState.edit
            assert state.has_edits or not overridden, f"{name} has edit, which nobody calls: let it state has_edits"
            path: tuple[int, ...] = ()
            for _ in range(4):
                logits = torch.randn(TOY_VOCAB, generator=generator)
                edited = state.apply(logits.clone(), path).clone()
                again = state.apply(logits.clone(), path)
                assert torch.equal(again, edited), f"apply, called again with {path}, gave another row. {STATELESS}"
                if state.has_edits:
                    row = logits.clone()
                    state.edit(TorchRow(row), path)
                    assert torch.equal(row, edited), (wire.params, path)
                    rows += 1
                path = (*path, int(edited.argmax()))
        engine.abort(wire.request_id)
    note(f"{rows} rows compared, those of the core among them")


def test_ten_thousand_requests(start: Start, drafts: bool, note: Note) -> None:
    """Nothing of them stays behind: fewer than one Python object in ten requests, and of memory in all no more than
    what a drafter keeps of their tokens. What the allocator takes once is no such memory: the next ten thousand take no
    more."""
    engine = start({str(i): (1, 2, 3, 4) for i in range(MANY + WARM)}, {"max_num_seqs": TOGETHER})
    for guard in engine.drafting.guards:
        guard.fault_limit = 1 << 30

    def discard(output: RequestOutput) -> None:
        pass

    def serve(numbers: range) -> tuple[int, int]:
        for begin in numbers[:: 2 * TOGETHER]:
            some = range(begin, min(begin + 2 * TOGETHER, numbers.stop))
            wires = [toy_request(str(i), (i % 310, i % 7, 5), max_tokens=4, ignore_eos=True) for i in some]
            engine.run(wires, discard)
        gc.collect()
        return len(gc.get_objects()), resident_memory()

    warm, warm_bytes = serve(range(WARM))
    for _ in range(ROUNDS):
        objects, size = serve(range(WARM, WARM + MANY))
        grown, grown_bytes = max(0, objects - warm), max(0, size - warm_bytes)
        if grown < MANY / 10 and grown_bytes < MANY * BYTES:
            break
        warm, warm_bytes = objects, size
    assert grown < MANY / 10, f"{grown} objects more after {MANY} requests"
    assert grown_bytes < MANY * BYTES, f"{grown_bytes} bytes more after {MANY} requests"
    assert not faults_of(engine)
    note(f"{grown} objects and {grown_bytes // 1000} kB more after {MANY} requests")
