"""One request, against a server that answers well, badly or not at all."""

from __future__ import annotations

import pytest
from measured_server import CONNECTIONS, DONE, PAUSE, answering, text_event, usage_event

from specserve_bench.client.events import EventParser
from specserve_bench.client.records import DraftCounts
from specserve_bench.client.streaming import Sender
from specserve_bench.client.target import Target

END = text_event("", '"stop"')


async def record_of(pieces, *, timeout=5.0, **how):
    async with (
        answering(pieces, **how) as server,
        Target(str(server.make_url("")), timeout=timeout).session() as session,
    ):
        sender = Sender(session, str(server.make_url("/v1/completions")))
        return await sender.send(3, "code", b"{}")


async def test_times_are_those_of_events_with_tokens():
    record = await record_of([text_event("a"), text_event("b"), END, usage_event(7, 9), DONE])
    assert record.failure is None
    assert record.first >= PAUSE
    assert len(record.gaps) == 2
    assert record.last == pytest.approx(record.first + sum(record.gaps))  # not the pauses before usage and [DONE]
    assert (record.number, record.kind) == (3, "code")


async def test_tokens_are_counted_as_the_server_states_them():
    record = await record_of([text_event("a"), END, usage_event(7, 9), DONE])
    assert (record.num_prompt_tokens, record.num_tokens, record.counted) == (7, 9, "usage")
    assert record.seconds_per_token == pytest.approx((record.last - record.first) / 8)


async def test_without_usage_events_are_counted_and_it_says_so():
    record = await record_of([text_event("a"), END, DONE])
    assert (record.num_tokens, record.counted) == (2, "events")


async def test_a_chat_that_only_says_whose_turn_it_is_has_no_token_yet():
    role = b'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
    word = b'data: {"choices":[{"delta":{"content":"Yes"},"finish_reason":null}]}\n\n'
    record = await record_of([role, word, END, DONE])
    assert record.first > 2 * PAUSE * 0.9
    assert record.num_tokens == 2  # "Yes" and the end


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "tool_calls"])
async def test_reasoning_and_calls_of_a_chat_are_tokens(field):
    value = '[{"index":0}]' if field == "tool_calls" else '"hm"'
    record = await record_of([f'data: {{"choices":[{{"delta":{{"{field}":{value}}}}}]}}\n\n'.encode(), END, DONE])
    assert record.num_tokens == 2


async def test_drafts_are_counted_by_drafter():
    metrics = (
        '{"speculative_decoding":{"num_draft_tokens":9,"num_accepted_draft_tokens":4,"drafters":'
        '{"ngram":{"num_draft_tokens":6,"num_accepted_draft_tokens":1},"eagle":{"num_draft_tokens":3,"num_accepted_draft_tokens":3}}}}'
    )
    record = await record_of([END, usage_event(7, 9, metrics), DONE])
    assert record.drafters == {"ngram": DraftCounts(6, 1), "eagle": DraftCounts(3, 3)}


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ('{"speculative_decoding":{"num_draft_tokens":9,"num_accepted_draft_tokens":4}}', {"all": DraftCounts(9, 4)}),
        ('{"speculative_decoding":{"num_draft_tokens":0,"num_accepted_draft_tokens":0}}', {}),
        ('{"speculative_decoding":null}', None),
        ('{"speculative_decoding":"fast"}', None),
        ('"none of yours"', None),
    ],
)
async def test_other_servers_may_tell_less_of_drafts(metrics, expected):
    record = await record_of([END, usage_event(7, 9, metrics), DONE])
    assert record.failure is None
    assert record.drafters == expected


def step_event(*steps: str) -> bytes:
    told = ",".join(steps).encode()
    return b'data: {"choices":[{"text":"a","speculation":{"steps":[%s]}}]}\n\n' % told


async def test_steps_are_counted_by_why_they_stopped():
    rejected = '{"stopped":"rejected","reason":null,"tokens":[],"draft":[]}'
    waiting = '{"stopped":"no_draft","reason":"none of %d proposed draft tokens was verified: does not pay"}'
    record = await record_of(
        [step_event(rejected, waiting % 2), step_event(rejected), step_event(waiting % 31), END, DONE]
    )
    why = "no_draft: none of N proposed draft tokens was verified: does not pay"
    assert record.stops == {"rejected": 2, why: 2}
    assert record.failure is None


@pytest.mark.parametrize("told", ["null", "3", '{"steps":[3]}', '{"steps":[{}]}'])
async def test_what_is_told_of_steps_in_another_form_is_left_out(told):
    event = b'data: {"choices":[{"text":"a","speculation":%s}]}\n\n' % told.encode()
    record = await record_of([event, END, DONE])
    assert (record.stops, record.failure) == ({}, None)


@pytest.mark.parametrize(
    ("pieces", "how", "kind"),
    [
        ([b'{"error":{"message":"too many"}}'], {"status": 429}, "status 429"),
        ([b"<html>oops</html>"], {"status": 500}, "status 500"),
        ([b"<html>hello</html>\n\n"], {}, "no stream of events"),
        ([b"data: {nonsense\n\n"], {}, "no stream of events"),
        ([b'data: {"choices":"none"}\n\n'], {}, "no stream of events"),
        ([b"data: \xff\xfe\n\n"], {}, "no stream of events"),
        ([text_event("a"), b'data: {"error":{"message":"dead"}}\n\n', DONE], {}, "error event"),
        ([DONE], {}, "no tokens"),
        ([text_event("a")], {}, "ended early"),
        ([text_event("a")], {"breaks_off": True}, "connection lost"),
        ([], {"breaks_off": True}, "connection"),
        ([b": ping\n\n"] * 20, {"timeout": 0.3}, "timeout"),
    ],
)
async def test_a_failure_has_a_kind(pieces, how, kind):
    record = await record_of(pieces, **how)
    assert record.failure.kind == kind
    assert record.failure.message
    assert record.last > 0


async def test_the_next_request_uses_the_same_connection():
    """Making another one would count in its time to the first token."""
    async with answering([END, DONE, b": the end comes later"]) as server, Target("").session() as session:
        sender = Sender(session, str(server.make_url("/v1/completions")))
        for number in range(3):
            await sender.send(number, "code", b"{}")
        assert len(server.app[CONNECTIONS]) == 1


async def test_a_connection_that_is_lost_behind_the_end_fails_no_request():
    record = await record_of([END, DONE], breaks_off=True)
    assert record.failure is None


async def test_a_server_that_is_not_there_is_a_failed_connection():
    async with answering([]) as server:
        url = str(server.make_url("/v1/completions"))
    async with Target(url).session() as session:
        record = await Sender(session, url).send(0, "code", b"{}")
    assert record.failure.kind == "connection"


STREAM = b": ping\r\n\r\ndata: one\r\n\r\nevent: x\ndata: two\ndata: more\n\n\n\ndata:three\n\ndata: four\n"


@pytest.mark.parametrize("size", range(1, 20))
def test_events_are_the_same_however_the_stream_is_cut(size):
    parser = EventParser()
    events = [event for at in range(0, len(STREAM), size) for event in parser.feed(STREAM[at : at + size])]
    assert events == [b"one", b"two\nmore", b"three"]  # the last one is not complete
