"""The plugin in an engine and behind the server: what is published, its metrics, its route, its flag."""

from __future__ import annotations

import gc
import json

import pytest
import zmq
from aiohttp.test_utils import TestClient, TestServer
from subscribers import Subscriber
from test_publishing import ANYWHERE, wait_until

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.errors import ConfigError
from specserve_kv_events.wire import short_hash
from specserve_server.app.application import make_app
from specserve_server.cli import build_parser
from specserve_server.commands.layers import load_configuration
from specserve_server.config import ServerConfig
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import assert_lossless, make_engine, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

PUBLISHING = {"plugins": ("kv_events",), "plugin_options": {"kv_events": {"endpoint": ANYWHERE}}}


def publisher_of(engine):
    (guarded,) = engine.parts.cache_journal.observers
    return guarded.observer.publisher


def test_a_subscriber_knows_the_blocks_that_the_engine_knows(toy_model, context):
    engine = make_engine(toy_model, block_size=4, kv_memory="40K", max_num_seqs=4, **PUBLISHING).engine
    publisher = publisher_of(engine)
    subscriber = Subscriber(context, publisher.sockets.endpoint)
    for i in range(100):
        run_requests(engine, [toy_request(f"a{i}", (i, *range(8)), max_tokens=1)])
        if subscriber.receive(50):
            break
    engine.reset_prefix_cache()
    requests = [toy_request(str(i), range(10 * i, 10 * i + 9), max_tokens=24, ignore_eos=True) for i in range(8)]
    assert run_requests(engine, requests).metrics.num_preemptions > 0
    subscriber.receive_until(publisher.next_sequence - 1)
    assert subscriber.known == {short_hash(h) for h in engine.scheduler.pool.by_hash}
    assert subscriber.sequences == list(range(subscriber.sequences[0], publisher.next_sequence))
    publisher.stop()


def test_it_changes_no_token(toy_model):
    served = assert_lossless(toy_model, varied_requests(24), lambda outputs: OracleDrafter(outputs, 4), **PUBLISHING)
    assert served.metrics.num_accepted_tokens > 50


def test_an_engine_that_is_forgotten_ends_its_publisher(toy_model):
    publisher = publisher_of(make_engine(toy_model, **PUBLISHING).engine)
    gc.collect()
    wait_until(lambda: not publisher.thread.is_alive())


async def test_the_server_tells_where_it_publishes_and_counts(toy_model, context):
    options = {"endpoint": "tcp://*:*", "replay_endpoint": ANYWHERE, "topic": "kv@a@b", "buffer": 77}
    config = EngineConfig(
        model=str(toy_model), threads=1, kv_memory="64M", block_size=4, default_plugins=False,
        plugins=("kv_events",), plugin_options={"kv_events": options},
    )  # fmt: skip
    engine = await AsyncEngine.start(config)
    publisher = publisher_of(engine.engine)
    async with TestClient(TestServer(make_app(engine, ServerConfig()))) as client:
        sources = await (await client.get("/kv_event_sources")).json()
        assert sources["0"]["endpoint"].startswith("tcp://*:")
        assert sources["0"]["replay_endpoint"] == publisher.sockets.replay_endpoint
        assert {k: sources["0"][k] for k in ("topic", "buffer_steps", "encoding", "schema_version")} == {
            "topic": "kv@a@b", "buffer_steps": 77, "encoding": "msgpack", "schema_version": 1,
        }  # fmt: skip
        body = {"prompt": list(range(9)), "max_tokens": 1}
        assert (await client.post("/v1/completions", json=body)).status == 200
        assert (await client.post("/reset_prefix_cache")).status == 200
        text = await (await client.get("/metrics")).text()
        assert "specserve_kv_events_published_total 2.0" in text
        assert "specserve_kv_events_dropped_total 0.0" in text
        assert "specserve_kv_events_last_sequence 1.0" in text
        document = await (await client.get("/openapi.json")).json()
        assert "/kv_event_sources" in document["paths"]
    assert not publisher.thread.is_alive(), "the server's end ends it"


async def test_a_server_that_connects_has_no_endpoint_to_tell(toy_model, context):
    collector = context.socket(zmq.SUB)
    port = collector.bind_to_random_port("tcp://127.0.0.1")
    config = EngineConfig(
        model=str(toy_model), threads=1, kv_memory="64M", default_plugins=False,
        plugins=("kv_events",), plugin_options={"kv_events": {"endpoint": f"tcp://127.0.0.1:{port}"}},
    )  # fmt: skip
    async with TestClient(TestServer(make_app(await AsyncEngine.start(config), ServerConfig()))) as client:
        assert await (await client.get("/kv_event_sources")).json() == {}


def config_of(*flags):
    return load_configuration(build_parser().parse_args(["serve", *flags])).engine


def test_the_flag_is_the_plugin_with_its_endpoint():
    config = config_of("--kv-events", "tcp://*:6000", "--plugin", "ngram", "--set", "kv_events.topic=t")
    assert config.plugins == ("ngram", "kv_events")
    assert config.plugin_options == {"kv_events": {"endpoint": "tcp://*:6000", "topic": "t"}}
    assert "kv_events" not in config_of().plugins


def test_in_a_file_it_is_a_key_of_the_engine_which_the_flag_replaces(tmp_path):
    file = tmp_path / "specserve.toml"
    file.write_text('[engine]\nkv_events = "tcp://*:6001"\n[plugins.kv_events]\ntopic = "t"\n')
    config = config_of("--config", str(file))
    assert config.plugins == ("kv_events",)
    assert config.plugin_options == {"kv_events": {"endpoint": "tcp://*:6001", "topic": "t"}}
    config = config_of("--config", str(file), "--kv-events", "tcp://*:6002")
    assert config.plugin_options["kv_events"]["endpoint"] == "tcp://*:6002"
    config = config_of("--config", str(file), "--set", "kv_events.endpoint=tcp://*:6003")
    assert config.plugin_options["kv_events"]["endpoint"] == "tcp://*:6003"


def test_a_flag_of_a_plugin_that_is_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.setattr("specserve_server.cli.plugin_flags.entry_points", lambda **_: ())
    for flag, value in (("kv-events", "tcp://*:1"), ("tensor-parallel", "2")):
        with pytest.raises(ConfigError, match=rf"^--{flag} needs .* Run pip install specserve-plugin-{flag}"):
            config_of(f"--{flag}", value)


def test_the_flag_of_tensor_parallel_sets_its_ranks(monkeypatch):
    monkeypatch.setattr("specserve_server.cli.plugin_flags.entry_points", lambda **_: (json,))
    config = config_of("--tensor-parallel", "2")
    assert (config.plugins, config.plugin_options) == (("tensor_parallel",), {"tensor_parallel": {"ranks": "2"}})
