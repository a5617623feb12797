"""The files of deploy/: their flags are those of `specserve serve`, and no server is killed while it drains."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from specserve_server.cli import build_parser
from specserve_server.commands.layers import Configuration, load_configuration

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).parents[2] / "deploy"


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def pod() -> Any:
    return documents("kubernetes/specserve.yaml")[0]["spec"]["template"]["spec"]


def unit() -> dict[str, str]:
    lines = (DEPLOY / "systemd/specserve.service").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def commands() -> Iterator[tuple[str, list[str], float | None]]:
    """Where, the arguments of `specserve serve`, and the seconds after which the system kills it."""
    image = (DEPLOY / "container/Containerfile").read_text()
    (written,) = re.findall(r'^CMD (\["/model.*\])$', image, re.MULTILINE)
    yield "Containerfile", json.loads(written), None
    compose = documents("container/compose.yaml")[0]["services"]["server-1"]
    yield "compose.yaml", compose["command"], seconds(compose["stop_grace_period"])
    yield "specserve.yaml", pod()["containers"][0]["args"], pod()["terminationGracePeriodSeconds"]
    service = unit()
    yield "specserve.service", shlex.split(service["ExecStart"])[2:], seconds(service["TimeoutStopSec"])


COMMANDS = {name: (arguments, grace) for name, arguments, grace in commands()}


def configured(name: str) -> Configuration:
    return load_configuration(build_parser().parse_args(["serve", *COMMANDS[name][0]]))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_is_one_of_serve(name: str) -> None:
    server = configured(name).server
    assert server.port == 8000
    assert server.drain_wait > 0


@pytest.mark.parametrize("name", COMMANDS)
def test_it_may_drain_before_it_is_killed(name: str) -> None:
    server, grace = configured(name).server, COMMANDS[name][1]
    if name != "Containerfile":  # who runs the image says how long it may take
        assert grace is not None
        assert grace > server.drain_wait + server.drain_seconds


def test_probes_see_the_drain_and_do_not_restart_it() -> None:
    container = pod()["containers"][0]
    ready = container["readinessProbe"]
    assert ready["httpGet"]["path"] == container["startupProbe"]["httpGet"]["path"] == "/health"
    assert "httpGet" not in container["livenessProbe"], "/health is 503 while it drains"
    assert ready["periodSeconds"] * ready["failureThreshold"] < configured("specserve.yaml").server.drain_wait


def test_ports_are_those_of_the_flags() -> None:
    ports = {port["name"]: port["containerPort"] for port in pod()["containers"][0]["ports"]}
    configuration = configured("specserve.yaml")
    assert configuration.engine.plugin_options["kv_events"]["endpoint"] == f"tcp://*:{ports['kv-events']}"
    assert configuration.server.port == ports["http"]


def test_routers_ask_the_servers_that_there_are() -> None:
    (router, _), servers = documents("kubernetes/router.yaml"), documents("kubernetes/specserve.yaml")[0]["spec"]
    (script,) = router["spec"]["template"]["spec"]["containers"][0]["args"]
    asked = re.findall(r"http://specserve-(\d+)\.specserve:8000", script)
    assert asked == [str(i) for i in range(servers["replicas"])]
    compose = documents("container/compose.yaml")[0]["services"]
    assert set(re.findall(r"http://(server-\d+):8000", compose["router"]["command"][2])) == {*compose} - {"router"}
