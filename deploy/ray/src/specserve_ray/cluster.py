"""A Ray cluster, joined or started, and the application in it."""

from __future__ import annotations

import os
import re
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import ray
from ray import serve

from specserve.errors import ConfigError
from specserve_ray.application import build_app
from specserve_ray.names import NAMESPACE, actor_name
from specserve_server.app.listening import reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_ray.config import Configuration

HEALTHY = ("HEALTHY",)
EXCEPTION = re.compile(r"(?m)^[\w.]+(Error|Exception)\b")
USAGE_STATISTICS = "RAY_USAGE_STATS_ENABLED"
"""Ray reports how it is used unless this is 0; specserve leaves the choice to whoever sets it."""


NEW_CLUSTER, THIS_CLUSTER = "local", "auto"
"""Addresses: one that is started here, and the one that runs on this machine."""


def find_port(host: str, port: int) -> int:
    """The port, or a free one for 0. Raises ConfigError: several proxies of Ray could share a port without a word."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(f"[server] cannot listen on {host}:{port}: {reason(error)}. Choose another.") from None
        found: int = probe.getsockname()[1]
        return found


@contextmanager
def joined(address: str, *, shows_logs: bool = False) -> Iterator[None]:
    """Of a cluster that was started here nothing is left. Raises ConnectionError where there is none at the address."""
    os.environ.setdefault(USAGE_STATISTICS, "0")
    started = {"include_dashboard": False} if address == NEW_CLUSTER else {}
    ray.init(address=address, log_to_driver=shows_logs, logging_level="WARNING", **started)
    try:
        yield
    finally:
        ray.shutdown()


def cluster_address() -> str:
    """Of the cluster that was joined."""
    address: str = ray.get_runtime_context().gcs_address
    return address


def deploy(configuration: Configuration) -> None:
    """Returns once every replica is ready; replaces a running application of the same name, a replica after the other.
    Raises RuntimeError where Ray gives it up."""
    server = configuration.server
    serve.start(proxy_location=configuration.ray.proxies, http_options={"host": server.host, "port": server.port})
    try:
        serve.run(build_app(configuration), name=configuration.ray.name, route_prefix="/")
    except RuntimeError as error:
        raise RuntimeError(f"{str(error).rstrip('.')}: {why_unhealthy(configuration.ray.name)}") from error


def why_unhealthy(name: str) -> str:
    """What the replicas raised, as far as Ray kept it."""
    application = serve.status().applications.get(name)
    found = () if application is None else tuple(application.deployments.values())
    messages = [each.message.strip() for each in found if each.status.value not in HEALTHY]
    return " ".join(map(without_traceback, messages)) or "Ray says no more"


def without_traceback(message: str) -> str:
    """From the last line that names an exception; all of it where there is none."""
    begins = [found.start() for found in EXCEPTION.finditer(message)]
    return message[begins[-1] :] if begins else message


class Status(NamedTuple):
    lines: tuple[str, ...]
    is_running: bool


def read_status(name: str) -> Status:
    application = serve.status().applications.get(name)
    if application is None:
        return Status((f"{name}: there is no such application",), False)
    lines = [f"{name}: {application.status.value} {application.message}".rstrip()]
    for deployment, found in application.deployments.items():
        states = ", ".join(f"{count} {state}" for state, count in found.replica_states.items())
        lines.append(f"  {deployment}: {found.status.value}, replicas: {states or 'none'}")
    return Status(tuple(lines), application.status.value == "RUNNING")


def remove(name: str) -> None:
    """The application and the actor with its changes. Requests may end before."""
    serve.delete(name)
    with suppress(ValueError):  # there is none
        ray.kill(ray.get_actor(actor_name(name), namespace=NAMESPACE))
