"""A cache observer is told every change of the prefix cache, in its order, and costs nobody a token."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mirror import Mirror, assert_mirrored, mirrored_engine
from msgspec.structs import replace
from tests_plugin import in_process

from specserve.engine.cache_journal import NO_JOURNAL
from specserve.errors import PluginError
from specserve.protocols import BlocksStored, CacheCleared, Drafter
from specserve.types import Draft
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

SMALL = {"block_size": 4, "kv_memory": "40K", "max_num_seqs": 4}
"""So few blocks that requests are preempted and known blocks evicted."""


class Guesses(Drafter):
    """The last tokens again, which is sometimes right."""

    name = "guesses"

    def propose(self, batch, output, verdict, limits):
        return [
            Draft(tokens=tuple(span.request.tokens[-3:])[:limit]) if limit else None
            for span, limit in zip(batch.spans, limits, strict=True)
        ]


def test_consecutive_blocks_of_a_request_are_one_change_with_their_tokens(toy_model):
    engine, mirror = mirrored_engine(toy_model, block_size=4)
    prompt = tuple(range(10, 23))
    run_requests(engine, [toy_request("a", prompt, max_tokens=1)])
    (stored,) = mirror.changes
    assert stored.token_ids == prompt[:12]
    assert (len(stored.hashes), stored.parent, stored.adapter, stored.cache_salt) == (3, None, "", None)
    run_requests(engine, [toy_request("b", (*prompt, *range(30, 40)), max_tokens=1)])
    assert mirror.changes[1].parent == stored.hashes[-1]
    assert mirror.changes[1].token_ids == (prompt + tuple(range(30, 40)))[12:20]


def test_a_salt_is_told_and_has_hashes_of_its_own(toy_model):
    engine, mirror = mirrored_engine(toy_model, block_size=4)
    for i, salt in enumerate((None, "", "s")):
        run_requests(engine, [replace(toy_request(f"r{i}", range(9), max_tokens=1), cache_salt=salt)])
    assert [change.cache_salt for change in mirror.changes] == [None, "", "s"]
    assert len(mirror.known) == 6


def test_hashes_are_the_same_in_every_engine(toy_model):
    runs = []
    for _ in range(2):
        engine, mirror = mirrored_engine(toy_model, block_size=4)
        run_requests(engine, [toy_request("a", range(9), max_tokens=1)])
        runs.append(mirror.known)
    assert runs[0] == runs[1]


def test_a_reset_clears_what_nobody_holds(toy_model):
    engine, mirror = mirrored_engine(toy_model, block_size=4)
    run_requests(engine, [toy_request("a", range(9), max_tokens=1)])
    engine.reset_prefix_cache()
    assert mirror.changes[-1] == CacheCleared()
    engine.add(toy_request("b", range(20, 29), max_tokens=9, ignore_eos=True))
    run_requests(engine, [toy_request("c", range(40, 53), max_tokens=1)])
    engine.add(toy_request("d", range(60, 69), max_tokens=9, ignore_eos=True))
    engine.step()
    engine.reset_prefix_cache()
    assert mirror.known
    assert_mirrored(engine, mirror)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_is_told_adds_up_to_what_the_cache_knows(toy_model, data):
    """Requests that share beginnings, salts and adapters come, are preempted, aborted and done, between resets; drafts
    are often wrong."""
    drafter = Guesses() if data.draw(st.booleans()) else None
    mirror = Mirror()
    engine = make_engine(toy_model, drafter, extra=in_process("mirror", mirror), **SMALL).engine
    for i in range(data.draw(st.integers(1, 8))):
        begin, length = data.draw(st.sampled_from((5, 50))), data.draw(st.integers(1, 20))
        salt, adapter = data.draw(st.sampled_from((None, "s"))), data.draw(st.sampled_from(("", "a@1")))
        request = toy_request(str(i), range(begin, begin + length), max_tokens=12, ignore_eos=True)
        engine.add(replace(request, cache_salt=salt, adapter=adapter))  # unchecked: without a plugin, of the base model
        for _ in range(data.draw(st.integers(0, 6))):
            engine.step()
            assert_mirrored(engine, mirror)
        match data.draw(st.sampled_from(("go on", "abort", "reset"))):
            case "abort":
                engine.abort(str(data.draw(st.integers(0, i))))
            case "reset":
                engine.reset_prefix_cache()
                assert_mirrored(engine, mirror)
    while engine.has_work:
        engine.step()
        assert_mirrored(engine, mirror)


def test_a_cache_that_is_too_small_tells_of_evictions_and_preemptions(toy_model):
    engine, mirror = mirrored_engine(toy_model, **SMALL)
    requests = [toy_request(str(i), range(10 * i, 10 * i + 9), max_tokens=24, ignore_eos=True) for i in range(8)]
    outcome = run_requests(engine, requests)
    assert outcome.metrics.num_preemptions > 0
    stored = sum(len(change.hashes) for change in mirror.changes if isinstance(change, BlocksStored))
    assert stored > len(mirror.known) > 0
    assert_mirrored(engine, mirror)


def test_nothing_is_told_without_a_prefix_cache(toy_model):
    engine, mirror = mirrored_engine(toy_model, prefix_cache=False)
    run_requests(engine, varied_requests(8))
    assert mirror.changes == []


def test_without_an_observer_nothing_is_collected(toy_model):
    engine = make_engine(toy_model).engine
    assert engine.parts.cache_journal is engine.scheduler.prefix_cache.journal is NO_JOURNAL


def test_an_observer_that_fails_is_switched_off_and_stopped_all_the_same(toy_model):
    class Failing(Mirror):
        num_calls = 0

        def changed(self, changes):
            self.num_calls += 1
            raise ValueError("no")

    observer, requests = Failing(), varied_requests(16)
    engine = make_engine(toy_model, extra=in_process("failing", observer), block_size=4, fault_limit=3).engine
    assert run_requests(engine, requests).decided() == plain_run(toy_model, requests).decided()
    assert observer.num_calls == 3
    assert engine.metrics.faults.disabled == {("failing", "cache observer")}
    engine.parts.cache_journal.stop()
    assert observer.num_stops == 1


def test_what_is_no_cache_observer_is_refused_by_name(toy_model):
    with pytest.raises(PluginError, match="wrong answers make_cache_observer with a object"):
        make_engine(toy_model, extra=in_process("wrong", object()))
