"""CONFIG.toml: what is read, what is refused and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from specserve.errors import ConfigError
from specserve_ray.config_file import read_configuration

if TYPE_CHECKING:
    from pathlib import Path

    from specserve_ray.config import Configuration


def read(folder: Path, text: str) -> Configuration:
    path = folder / "config.toml"
    path.write_text(text)
    return read_configuration(path)


def test_all_tables_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECSERVE_API_KEY", "of the environment")
    text = """
    [engine]
    threads = 3
    plugins = ["ngram"]
    [plugins.ngram]
    max_n = 4
    [server]
    port = 9
    served_model_name = "chat"
    [ray]
    replicas = 5
    gpus = 0.5
    resources = {fast = 1}
    [ray.routing]
    max_imbalance = 9
    """
    found = read(tmp_path, text)
    assert (found.engine.plugins, found.engine.plugin_options) == (("ngram",), {"ngram": {"max_n": 4}})
    assert (found.server.port, found.server.api_keys) == (9, ("of the environment",))
    assert (found.ray.replicas, found.ray.resources, found.ray.routing.max_imbalance) == (5, {"fast": 1.0}, 9)
    assert found.base_names == ("chat", "demo")


def test_a_replica_has_the_threads_for_which_cores_are_kept(tmp_path: Path) -> None:
    cases = {
        "": (1.0, 1),
        "[engine]\nthreads = 4": (4.0, 4),
        "[ray]\ncpus = 2.5": (2.5, 2),
        "[ray]\ncpus = 0.5": (0.5, 1),
    }
    for text, wanted in cases.items():
        found = read(tmp_path, text)
        assert (found.cpus, found.replica_engine.threads) == wanted


def test_a_replica_takes_all_requests_that_its_engine_may_refuse(tmp_path: Path) -> None:
    found = read(tmp_path, "[engine]\nmax_num_seqs = 8\nmax_waiting = 2")
    assert found.max_ongoing_requests > 8 + 2
    assert read(tmp_path, "[ray]\nmax_ongoing_requests = 7").max_ongoing_requests == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[engin]", r"unknown table \[engin\].*use \[engine\], \[server\], \[plugins.NAME\], \[ray\]"),
        ("replicas = 2", "replicas is in no table"),
        ("[ray]\nreplica = 2", r"\[ray\] .*replica.*replicas"),
        ("[ray]\nreplicas = 0", "replicas must be at least 1; got 0"),
        ('[ray]\nreplicas = "two"', r"\[ray\] replicas: must be an integer"),
        ('[ray]\nname = "a b"', "name must be of letters"),
        ("[ray]\nstats_period = 0", "stats_period must be above 0; got 0"),
        ("[ray]\nresources = {fast = -1}", "resources.fast must be above 0; got -1"),
        ('[ray]\nproxies = "Everywhere"', "proxies must be one of HeadOnly, EveryNode; got 'Everywhere'"),
        ("[ray]\nreplicas = 2\n[ray.autoscaling]\nmax_replicas = 3", "replicas and autoscaling exclude each other"),
        ("[ray.autoscaling]\nmin_replicas = 3", "max_replicas must be at least min_replicas, 3; got 1"),
        ("[ray.routing]\nmin_match = 2", "min_match must be between 0 and 1; got 2"),
        ("[ray.routing]\nmax_load_ratio = nan", "max_load_ratio must be at least 1; got nan"),
        ('[server]\nuds = "/tmp/a"', r"\[server\] uds is not possible with Ray: .*Remove it"),
        ('[server]\ntls_cert = "a.pem"', r"\[server\] tls_cert is not possible with Ray: .*in a proxy"),
        ("[server]\nmax_requests_per_minute = 5", "max_requests_per_minute is not possible with Ray: each replica"),
        ("[server]\ndrain_wait = 5.0", "drain_wait is not possible with Ray"),
        ('[engine]\nplugin_options = {}', r"write plugin options as \[plugins.NAME\]"),
        ("[ray", "is not valid TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, text)


def test_a_wrong_key_is_not_printed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, "[server]\napi_key = 123456")
    assert "123456" not in str(raised.value)
