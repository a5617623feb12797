"""Steps in which nothing is drafted are noted as runs: the same as if each had been noted for itself."""

from __future__ import annotations

import random
from types import SimpleNamespace

import msgspec
import pytest
import torch
from runtime_cases import LAYERS, NUM_BLOCKS, WAITING, W, a_request, a_runtime, fed_positions, hashes, some_path, step

from specserve.batch.hidden_states import HiddenStates
from specserve_draft_models import runtime as runtime_module
from specserve_draft_models.idle_steps import (
    PlainSteps,
)

LONG = msgspec.structs.replace(LAYERS, max_len=1000)


def idle_steps(runtime, requests, count):
    """Steps of one token each; the feeds of those that had one."""
    feeds = []
    for _ in range(count):
        starts = [len(r.tokens) - 1 for r in requests]
        feeds.append(step(runtime, *requests, limits=[0] * len(requests), starts=starts))
        if feeds[-1] is not None:
            runtime.done(feeds[-1])
    return [feed for feed in feeds if feed is not None]


def requests_of(count):
    return [a_request(f"r{i}", 10, [n % NUM_BLOCKS for n in range(10 * i, 10 * i + 1000)]) for i in range(count)]


def started(requests, layers=LONG):
    runtime = a_runtime(layers)
    for request in requests:
        runtime.start(request)
    step(runtime, *requests, limits=[0] * len(requests))
    return runtime


def test_idle_steps_are_not_worked_out_before_something_is_drafted(monkeypatch):
    requests = requests_of(2)
    runtime, seen = started(requests), []
    monkeypatch.setattr(runtime, "advance", lambda *_: seen.append(1))
    idle_steps(runtime, requests, 20)
    assert not seen
    assert num_steps(runtime.run) == 20


def test_a_draft_behind_idle_steps_reads_all_their_hidden_states():
    requests = requests_of(3)
    runtime = started(requests)
    idle_steps(runtime, requests, 7)
    feed = step(runtime, *requests, starts=[17] * 3)
    assert fed_positions(feed) == [list(range(1, 19))] * 3
    assert feed.hidden[:, 0].tolist() == [*range(18)] * 3


def test_much_that_waits_is_fed_as_early_as_without_runs():
    requests = requests_of(2)
    runtime = started(requests)
    waiting = 11
    assert idle_steps(runtime, requests, WAITING - waiting - 1) == []
    assert len(idle_steps(runtime, requests, 3)) == 1


def test_a_request_beyond_the_draft_layers_does_not_end_the_runs_of_others():
    requests = requests_of(2)
    requests[0].tokens[:] = range(990)
    runtime = started(requests)
    for _ in range(3):
        idle_steps(runtime, requests, WAITING)
    assert runtime.run is not None
    idle_steps(runtime, requests, 8)
    assert num_steps(runtime.run) > 1


def test_verified_drafts_of_others_do_not_end_a_run():
    requests = requests_of(2)
    runtime = started(requests)
    idle_steps(runtime, requests, 3)
    step(runtime, *requests, limits=[0, 0], starts=[13, 13], drafts=[(6, (1, 4)), (2, ())])
    step(runtime, *requests, limits=[0, 0], starts=[16, 14], drafts=[(0, ()), (3, (0,))])
    assert num_steps(runtime.run) == 5
    feed = step(runtime, *requests, starts=[17, 16])
    assert fed_positions(feed) == [list(range(1, 19)), list(range(1, 18))]
    assert feed.hidden[:, 0].tolist() == [*range(18), *range(17)]


def test_a_step_behind_one_that_was_drafted_for_begins_a_run():
    requests = requests_of(1)
    runtime = started(requests)
    runtime.done(step(runtime, *requests, starts=[10]))
    assert runtime.run is None
    step(runtime, *requests, limits=[0], starts=[11])
    assert num_steps(runtime.run) == 1


def test_where_a_request_has_ended_its_last_tokens_are_due():
    requests = requests_of(2)
    runtime = started(requests)
    idle_steps(runtime, requests, 3)
    runtime.stop(requests[1])
    assert not runtime.goes_on(runtime.builder.schedule([]), None, None)
    step(runtime, requests[0], limits=[0], starts=[13])
    assert runtime.run is None
    step(runtime, requests[0], limits=[0], starts=[14])
    assert num_steps(runtime.run) == 1


def test_accepted_guesses_that_are_computed_again_are_read_from_the_later_step():
    """The scheduler counts less as computed where keys of an accepted path could not be moved."""
    requests = requests_of(1)
    runtime = started(requests)
    step(runtime, *requests, limits=[0], starts=[10], drafts=[(6, (1, 4))], lost=2)
    assert num_steps(runtime.run) == 1
    step(runtime, *requests, limits=[0], starts=[11])
    assert runtime.sequences["r0"].is_complete
    feed = step(runtime, *requests, starts=[14])
    assert fed_positions(feed) == [list(range(1, 16))]
    assert feed.hidden[:, 0].tolist() == [*range(15)]


def test_a_verifier_that_adds_no_token_to_an_accepted_path_leaves_its_last_row_for_later():
    requests = requests_of(1)
    runtime = started(requests)
    step(runtime, *requests, limits=[0], starts=[10], drafts=[(6, (1, 4))], lost=1)
    requests[0].tokens.pop()
    for start in (12, 13):
        step(runtime, *requests, limits=[0], starts=[start])
    assert num_steps(runtime.run) == 3
    feed = step(runtime, *requests, starts=[14])
    assert fed_positions(feed) == [list(range(1, 16))]
    assert feed.hidden[:, 0].tolist() == [*range(15)]


def test_steps_that_are_told_at_once_are_those_that_are_told_one_by_one():
    def feed_behind(count, told):
        requests = requests_of(3)
        runtime = started(requests)
        told(runtime, requests, count)
        feed = step(runtime, *requests, starts=[10 + count] * 3)
        return fed_positions(feed), feed.hidden.tolist()

    def at_once(runtime, requests, count):
        idle_steps(runtime, requests, 1)
        assert runtime.idle_steps() >= count - 1
        positions = range(11, 10 + count)
        for request in requests:
            request.tokens += [1] * len(positions)
            request.computed += len(positions)
        rows = torch.tensor([[p] * W for p in positions for _ in requests], dtype=torch.float32)
        runtime.add_idle(SimpleNamespace(num_rows=3), len(positions), [HiddenStates((1,), rows, 0, len(rows))])

    assert feed_behind(40, at_once) == feed_behind(40, idle_steps)


def test_a_runtime_that_waits_for_nothing_is_told_of_each_step():
    requests = requests_of(2)
    runtime = started(requests)
    assert runtime.idle_steps() == 0
    idle_steps(runtime, requests, 1)
    assert runtime.idle_steps() > 100
    runtime.stop(requests[0])
    assert runtime.idle_steps() == 0


def num_steps(run):
    return sum(step.count if isinstance(step, PlainSteps) else 1 for step in run.steps)


def replay(seed, layers):
    """A random history of steps, preemptions and ends. What each feed read, and what is known of blocks at the end."""
    rng, requests, seen = random.Random(seed), [], []
    runtime = a_runtime(layers)
    free = [*range(28)]
    rng.shuffle(free)
    for number in range(30):
        if len(requests) < 3 and len(free) >= 7:
            request = a_request(f"r{number}", rng.randint(3, 9), [])
            request.max_len = len(request.tokens) + rng.randint(2, 24)
            requests.append(request)
            runtime.start(request)
        for _ in range(rng.randint(1, 8)):
            requests = [request for request in requests if take_blocks(request, free)]
            if not requests:
                break
            limits = [rng.choice((0, 0, 0, 0, 0, 4)) for _ in requests]
            starts = [r.computed if r.blocks and r.computed > 0 else 0 for r in requests]
            for request in list(requests):
                if len(request.tokens) + 1 >= request.max_len:
                    request.finish_reason = "length"
                    runtime.stop(request)
            drafts = [some_draft(rng, request) for request in requests]
            feed = step(runtime, *requests, limits=limits, starts=starts, drafts=drafts)
            if feed is not None:
                seen.append((fed_positions(feed), feed.drafting, feed.hidden.tolist()))
                if rng.random() < 0.9:
                    runtime.done(feed)
            for request in [r for r in requests if r.finish_reason]:
                requests.remove(request)
                free += request.blocks
        victim = rng.choice(requests) if requests and rng.random() < 0.3 else None
        if victim is not None:
            free += victim.blocks
            victim.blocks, victim.computed = [], 0
            victim.preempted_at.append(0.0)
        aborted = rng.choice(requests) if requests and rng.random() < 0.1 else None
        if aborted is not None and aborted.blocks:
            aborted.finish_reason = "abort"
            requests.remove(aborted)
            runtime.passes = Ignored()
            runtime.stop(aborted)
            free += aborted.blocks
    return seen, runtime.draft_blocks.hash_of, runtime.draft_blocks.states


def some_draft(rng, request):
    """What another drafter guessed: nothing for half of the requests that decode."""
    room = request.max_len - len(request.tokens) - 2
    count = rng.choice((0, 0, 2, 5)) if request.computed > 0 and room > 3 else 0
    return count, some_path(rng, count)


class Ignored:
    """Passes that compute nothing."""

    def step(self, *_, **__):
        return None


def take_blocks(request, free):
    """Blocks for one token more, and the hashes of those that are full then; False where there are none left."""
    while len(request.blocks) * 4 <= len(request.tokens) + 7:
        if not free:
            return False
        request.blocks.append(free.pop())
    request.hashes = hashes(*(f"{request.id}.{i}" for i in range(len(request.tokens) // 4)))
    return True


@pytest.mark.parametrize("seed", range(30))
def test_runs_change_nothing_of_what_is_fed(seed, monkeypatch):
    fed, known, states = replay(seed, LAYERS)
    monkeypatch.setattr(runtime_module, "begin_run", lambda *_: None)
    expected, known_then, states_then = replay(seed, LAYERS)
    assert fed == expected
    assert known == known_then
    assert torch.equal(states, states_then)
    assert len(fed) > 3
