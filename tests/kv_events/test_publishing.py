"""Subscribers get every batch in order, or see that they missed one; nothing that they do reaches the engine."""

from __future__ import annotations

import socket
import threading
import time

import pytest
import zmq
from subscribers import DECODER, Subscriber, ask_for_replay

from specserve.errors import ConfigError
from specserve.protocols import BlocksRemoved, BlocksStored, CacheCleared
from specserve_kv_events.options import KvEventsOptions
from specserve_kv_events.publisher import Publisher
from specserve_kv_events.sockets import open_sockets
from specserve_kv_events.wire import make_writer

ANYWHERE = "tcp://127.0.0.1:*"
STORED = BlocksStored(hashes=(bytes(16),), parent=None, token_ids=(1, 2), adapter="", cache_salt=None)


@pytest.fixture
def publish():
    """`publish(topic="x")`: a publisher with these options; all end with the test."""
    publishers = []

    def make(**options):
        options = KvEventsOptions(**({"endpoint": ANYWHERE, "replay_endpoint": ANYWHERE} | options))
        writer = make_writer(options.encoding, 2)
        publisher = Publisher(open_sockets(options), writer, options.topic, options.buffer)
        publishers.append(publisher)
        return publisher

    yield make
    for publisher in publishers:
        publisher.stop()
        assert not publisher.thread.is_alive()


def joined(context, publisher, topic=b""):
    """A subscriber that surely gets what comes next: it got something before."""
    subscriber = Subscriber(context, publisher.sockets.endpoint, topic)
    for _ in range(100):
        publisher.publish([STORED])
        if subscriber.receive(50) is not None:
            while subscriber.receive(20) is not None:
                pass
            return subscriber
    raise AssertionError("it never joined")


def test_every_batch_comes_once_and_in_order(publish, context):
    publisher = publish()
    subscriber = joined(context, publisher)
    first = subscriber.sequences[0]
    for _ in range(500):
        publisher.publish([STORED])
    subscriber.receive_until(publisher.next_sequence - 1)
    assert subscriber.sequences == list(range(first, publisher.next_sequence))


def test_a_subscriber_chooses_by_the_topic(publish, context):
    publisher = publish(topic="kv@pod@demo")
    subscriber = joined(context, publisher, b"kv@")
    other = Subscriber(context, publisher.sockets.endpoint, b"other")
    publisher.publish([STORED])
    subscriber.receive_until(publisher.next_sequence - 1)
    assert other.receive(100) is None


def test_a_late_subscriber_gets_what_it_missed_by_replay(publish, context):
    publisher = publish(buffer=4)
    for number in range(6):
        publisher.publish([BlocksRemoved(hashes=(number.to_bytes(16, "big"),))])
    wait_until(lambda: not publisher.waiting)
    replayed = ask_for_replay(context, publisher.sockets.replay_endpoint, 3)
    assert [number for number, _ in replayed] == [3, 4, 5]
    assert [DECODER.decode(payload).events[0].block_hashes for _, payload in replayed] == [[3], [4], [5]]
    kept = ask_for_replay(context, publisher.sockets.replay_endpoint, 0)
    assert [number for number, _ in kept] == [2, 3, 4, 5], "older ones are not kept"
    assert ask_for_replay(context, publisher.sockets.replay_endpoint, 6) == []


def test_a_request_client_gets_its_replay_too(publish, context):
    """A REQ socket, as vLLM's example has it, reads one message per request: its end comes as a message of its own."""
    publisher = publish()
    publisher.publish([CacheCleared()])
    wait_until(lambda: not publisher.waiting)
    client = context.socket(zmq.REQ)
    client.connect(publisher.sockets.replay_endpoint)
    client.send((0).to_bytes(8, "big"))
    assert client.poll(5000)
    assert client.recv_multipart()[0] == bytes(8)


def test_rubbish_on_the_replay_socket_is_not_answered_and_harms_nobody(publish, context, caplog):
    publisher = publish()
    for frames in ([b"x"], [b"", b"no number"], [b""] * 5):
        dealer = context.socket(zmq.DEALER)
        dealer.connect(publisher.sockets.replay_endpoint)
        dealer.send_multipart(frames)
        assert not dealer.poll(100)
    publisher.publish([STORED])
    wait_until(lambda: not publisher.waiting)
    assert len(ask_for_replay(context, publisher.sockets.replay_endpoint, 0)) == 1
    assert "is not a number of 8 bytes" in caplog.text


def test_what_is_dropped_unsent_leaves_a_gap_in_the_numbers(publish, context):
    publisher = publish(buffer=10)
    subscriber = joined(context, publisher)
    release = threading.Event()
    write = publisher.writer.write
    publisher.writer.write = lambda *batch: (release.wait(5), write(*batch))[1]
    begin = publisher.next_sequence
    publisher.publish([STORED])
    wait_until(lambda: not publisher.waiting)  # the thread has it, and waits
    for _ in range(15):
        publisher.publish([STORED])
    release.set()
    subscriber.receive_until(begin + 15)
    assert publisher.num_dropped == 5
    assert subscriber.sequences[-11:] == [begin, *range(begin + 6, begin + 16)]


def test_a_subscriber_that_never_reads_costs_neither_time_nor_memory(publish, context):
    publisher = publish(hwm=10, buffer=100)
    joined(context, publisher)  # and reads no more
    began, count = time.perf_counter(), 20_000
    slowest = 0.0
    for _ in range(count):
        before = time.perf_counter()
        publisher.publish([STORED])
        slowest = max(slowest, time.perf_counter() - before)
    assert (time.perf_counter() - began) / count < 0.001
    assert slowest < 1.0
    assert len(publisher.waiting) <= 100
    wait_until(lambda: not publisher.waiting)
    assert len(publisher.sent) == 100


def test_it_connects_where_a_subscriber_binds(publish, context):
    collector = context.socket(zmq.SUB)
    port = collector.bind_to_random_port("tcp://127.0.0.1")
    collector.subscribe(b"")
    publisher = publish(endpoint=f"tcp://127.0.0.1:{port}", replay_endpoint=None)
    for _ in range(100):
        publisher.publish([STORED])
        if collector.poll(50):
            break
    assert DECODER.decode(collector.recv_multipart()[2]).events[0].token_ids == [1, 2]


@pytest.mark.parametrize(
    ("endpoint", "socket_kind", "binds"),
    [
        ("tcp://*:5557", "auto", True),
        ("tcp://[::]:5557", "auto", True),
        ("ipc:///tmp/kv", "auto", True),
        ("tcp://10.0.0.1:5557", "auto", False),
        ("tcp://10.0.0.1:5557", "bind", True),
        ("ipc:///tmp/kv", "connect", False),
    ],
)
def test_which_end_an_endpoint_is(endpoint, socket_kind, binds):
    assert KvEventsOptions(endpoint=endpoint, socket=socket_kind).binds == binds


@pytest.mark.parametrize("endpoint", ["", "5557", "*:5557", "tcp://*", "tcp://*:x", "http://a:1", "ipc://"])
def test_what_is_no_endpoint_is_refused_with_what_one_is(endpoint):
    for name in ("endpoint", "replay_endpoint"):
        with pytest.raises(ConfigError, match=rf"^{name}: '.*' is no endpoint\. Write tcp://HOST:PORT"):
            KvEventsOptions(**{name: endpoint})


@pytest.mark.parametrize("option", ["endpoint", "replay_endpoint"])
def test_a_port_in_use_is_told_with_the_option(option):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        there = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        options = {"endpoint": ANYWHERE, "socket": "bind"} | {option: there}
        with pytest.raises(ConfigError, match=rf"kv_events\.{option}: {there} cannot be bound: address already in use"):
            open_sockets(KvEventsOptions(**options))


def test_stopping_sends_what_waits_and_frees_the_port(publish, context):
    publisher = publish()
    subscriber = joined(context, publisher)
    for _ in range(50):
        publisher.publish([STORED])
    publisher.stop()
    subscriber.receive_until(publisher.next_sequence - 1)
    publisher.publish([STORED])  # of a step that was still running: nothing happens
    publish(endpoint=publisher.sockets.endpoint, socket="bind", replay_endpoint=None)


def test_what_is_published_while_it_stops_is_sent(publish, context):
    publisher = publish()
    subscriber = joined(context, publisher)

    def publish_last():
        if not publisher.is_stopping:
            publisher.publish([STORED])
            publisher.is_stopping = True

    publisher.serve_replays = publish_last
    publisher.publish([STORED])
    publisher.thread.join(5)
    subscriber.receive_until(publisher.next_sequence - 1)


def wait_until(holds, seconds=5.0):
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.002)
