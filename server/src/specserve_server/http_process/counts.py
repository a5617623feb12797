"""Counts of a further process: sent to the first one, whose /metrics are those of the server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from specserve.metrics import Histogram
from specserve_server.engine_process.sent_state import SentHistogram
from specserve_server.http_process import frames
from specserve_server.state.response_counts import Answered

if TYPE_CHECKING:
    from specserve_server.engine_process.channel import Channel
    from specserve_server.state.group_metrics import GroupMetrics
    from specserve_server.state.response_counts import ResponseCounts
    from specserve_server.state.server_state import ServerState

SECONDS_BETWEEN_FRAMES = 0.25


async def tell_counts(channel: Channel[frames.FromFirst], state: ServerState) -> None:
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_FRAMES)
        tell_counts_once(channel, state)


def tell_counts_once(channel: Channel[frames.FromFirst], state: ServerState) -> None:
    """Nothing where nothing was answered since the last time."""
    answers = state.responses.take()
    if answers:
        groups = state.groups.take()
        n, longest = sent_histogram(groups.n), sent_histogram(groups.max_num_generation_tokens)
        channel.send(frames.Counted(list(answers.items()), n, longest))


def include(counted: frames.Counted, responses: ResponseCounts, groups: GroupMetrics) -> None:
    responses.include({Answered(*labels): count for labels, count in counted.answers})
    groups.include(received_histogram(counted.n), received_histogram(counted.longest))


def sent_histogram(histogram: Histogram) -> SentHistogram:
    return SentHistogram(histogram.bounds, histogram.counts, histogram.total)


def received_histogram(sent: SentHistogram) -> Histogram:
    histogram = Histogram(sent.bounds)
    histogram.counts, histogram.total = sent.counts, sent.total
    return histogram
