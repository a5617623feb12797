"""When a run of steps in which nothing is drafted goes on, and when it ends."""

from __future__ import annotations

from types import SimpleNamespace

from runtime_cases import a_request

from specserve_draft_models.idle_steps import (
    MAX_RUN_ROWS,
    MIN_RUN_ROWS,
    RUN_BYTES,
    IdleSteps,
    Member,
    max_run_rows,
)


def a_run(request, start, most=100):
    return IdleSteps([Member(request, request.blocks, None, most)], [start], MIN_RUN_ROWS)  # type: ignore[arg-type]


def next_step(request, start, drafted=0):
    span = SimpleNamespace(request=request, start=start, length=1 + drafted, drafted=drafted)
    return SimpleNamespace(spans=[span], num_rows=1 + drafted)


def added(run, batch, path=()):
    (span,) = batch.spans
    span.request.computed = span.start + 1 + len(path)
    run.add(batch, SimpleNamespace(spans=[SimpleNamespace(path=path)]), {})


def test_a_run_keeps_a_bounded_number_of_rows():
    request = a_request()
    run = a_run(request, 10, most=10 * MIN_RUN_ROWS)
    for start in range(10, 10 + MIN_RUN_ROWS // 8):
        assert run.goes_on(next_step(request, start, drafted=7))
        added(run, next_step(request, start, drafted=7))
    assert not run.goes_on(next_step(request, 10 + MIN_RUN_ROWS // 8))


def test_a_run_ends_before_more_would_wait_than_may():
    request = a_request()
    assert a_run(request, 10, most=15).goes_on(next_step(request, 10, drafted=4))
    assert not a_run(request, 10, most=15).goes_on(next_step(request, 10, drafted=5))


def test_a_run_goes_on_at_its_next_position_only():
    request = a_request()
    run = a_run(request, 10)
    added(run, next_step(request, 10))
    assert run.goes_on(next_step(request, 11))
    assert not run.goes_on(next_step(request, 12))
    assert not run.goes_on(next_step(a_request(), 11))
    added(run, next_step(request, 11, drafted=4), path=(0, 2))
    assert run.goes_on(next_step(request, 14))
    assert not run.goes_on(next_step(request, 12))


def test_a_run_ends_where_a_request_has_other_blocks_at_the_same_position():
    """It was preempted, and goes on behind blocks of the prefix cache."""
    request = a_request()
    run = a_run(request, 10)
    request.blocks = list(request.blocks)
    assert not run.goes_on(next_step(request, 10))


def test_a_run_says_how_many_plain_steps_it_can_be_told_of_at_once():
    request = a_request()
    run = a_run(request, 10, most=30)
    assert run.idle_steps() == 20
    added(run, next_step(request, 10))
    assert run.idle_steps() == 19
    run.add_plain(19, 1, ())
    assert run.idle_steps() == 0
    assert not run.goes_on(next_step(request, 30))
    assert a_run(request, 10, most=10 * MIN_RUN_ROWS).idle_steps() == MIN_RUN_ROWS


def test_a_run_keeps_as_many_rows_as_take_some_megabytes():
    assert max_run_rows(RUN_BYTES // 1000) == 1000
    assert max_run_rows(RUN_BYTES) == MIN_RUN_ROWS
    assert max_run_rows(0) == max_run_rows(2) == MAX_RUN_ROWS
