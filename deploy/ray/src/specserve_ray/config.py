"""The configuration of an application: the tables [engine], [server], [plugins.NAME] and [ray].

Owns the names, defaults and bounds of [ray], and what of [server] replicas cannot keep to.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec.structs import replace

from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve_checks.allowed_values import Allowed, AtLeast, Form, OneOf, Unset, check_fields
from specserve_ray.names import APP
from specserve_ray.policy_options import PolicyOptions
from specserve_server.config import ServerConfig

PROXIES = ("HeadOnly", "EveryNode")
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
KEPT_APART = "each replica would count for itself: set the limit in a proxy in front of Ray"
REFUSED = {
    "uds": "Ray listens on [server] host and port only",
    "tls_cert": "Ray's proxies serve HTTP: end TLS in a proxy in front of them",
    "max_requests_per_minute": KEPT_APART,
    "max_concurrent_requests_per_key": KEPT_APART,
    "drain_wait": "Ray takes replicas out of its routers itself",
}
"""Options of [server] that replicas behind a router cannot keep to, with the reason."""


@dataclass(frozen=True)
class MoreThanZero(Allowed):
    def __str__(self) -> str:
        return "above 0"

    def problem(self, name: str, got: object) -> str:
        if isinstance(got, int | float) and 0 < got < math.inf:
            return ""
        return f"{name} must be above 0; got {got}."


class AutoscalingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[ray.autoscaling]: so many replicas that each has about `target_ongoing_requests`."""

    min_replicas: Annotated[int, AtLeast(1)] = 1
    max_replicas: Annotated[int, AtLeast(1)] = 1
    target_ongoing_requests: Annotated[float, AtLeast(1)] = 16
    upscale_delay: Annotated[float, AtLeast(0)] = 30.0
    """Seconds for which more must be wanted."""
    downscale_delay: Annotated[float, AtLeast(0)] = 600.0

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        if self.max_replicas < self.min_replicas:
            raise ConfigError(
                f"autoscaling.max_replicas must be at least min_replicas, {self.min_replicas}; got {self.max_replicas}."
            )


class RayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[ray]."""

    name: Annotated[str, Form("letters, digits, - and _")] = APP
    """Of the application in the cluster."""
    address: Annotated[str | None, Unset("a new cluster on this machine")] = None
    """Of a running cluster: HOST:PORT, or auto for the one of this machine."""
    replicas: Annotated[int, AtLeast(1)] = 1
    autoscaling: AutoscalingConfig | None = None
    """In place of a fixed number of replicas."""
    ingresses: Annotated[int, AtLeast(1)] = 1
    """Processes that read requests and choose replicas; each knows the prefixes of its own requests only."""
    cpus: Annotated[float | None, AtLeast(0), Unset("threads of [engine], else 1")] = None
    """Of each replica. Its engine has as many threads, at least one, unless [engine] says otherwise."""
    gpus: Annotated[float, AtLeast(0)] = 0.0
    resources: dict[str, float] = {}
    """Other resources that a replica's node must have, by name."""
    max_ongoing_requests: Annotated[int | None, AtLeast(1), Unset("what its engine runs and queues")] = None
    """Requests that may be at one replica; others wait at the ingress."""
    health_check_period: Annotated[float, MoreThanZero()] = 5.0
    """Seconds."""
    health_check_timeout: Annotated[float, MoreThanZero()] = 30.0
    """Seconds."""
    stats_period: Annotated[float, MoreThanZero()] = 1.0
    """Seconds between the reports of a replica's load to the routers."""
    chunk_interval: Annotated[float, AtLeast(0)] = 0.0
    """Seconds between two parts of a stream: events that come in between are sent together, which costs Ray less."""
    queue_seconds: Annotated[float, AtLeast(0)] = 30.0
    """How long a request waits where no replica is ready, before it is answered 503."""
    broadcast: tuple[str, ...] = ("/reset_prefix_cache",)
    """Paths of POST requests that every replica is to get: of plugins, for example, that keep something in memory."""
    proxies: Annotated[str, OneOf(PROXIES)] = "HeadOnly"
    """The nodes on which [server] host and port are listened on."""
    routing: PolicyOptions = PolicyOptions()

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        if not NAME.fullmatch(self.name):
            raise ConfigError(f"name must be of letters, digits, - and _, at most 64; got {self.name!r}.")
        if self.autoscaling is not None and self.replicas != 1:
            raise ConfigError("replicas and autoscaling exclude each other. Remove one of them.")
        for name, amount in self.resources.items():
            if problem := MoreThanZero().problem(f"resources.{name}", amount):
                raise ConfigError(problem)


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """Of an application. Raises ConfigError for what its parts cannot keep to."""

    engine: EngineConfig = EngineConfig()
    server: ServerConfig = ServerConfig()
    ray: RayConfig = RayConfig()

    def __post_init__(self) -> None:
        for name, why in REFUSED.items():
            if getattr(self.server, name) != getattr(ServerConfig(), name):
                raise ConfigError(f"[server] {name} is not possible with Ray: {why}. Remove it.")

    @property
    def base_names(self) -> tuple[str, ...]:
        """The names of the model that is no adapter."""
        return (*self.server.served_model_names, self.engine.model)

    @property
    def cpus(self) -> float:
        """Of each replica."""
        return float(self.engine.threads or 1) if self.ray.cpus is None else self.ray.cpus

    @property
    def replica_engine(self) -> EngineConfig:
        """A replica has no more threads than cores are kept for it."""
        return replace(self.engine, threads=self.engine.threads or max(1, int(self.cpus)))

    @property
    def max_ongoing_requests(self) -> int:
        """The engine refuses what is more than it runs and queues; that answer should be the engine's."""
        return self.ray.max_ongoing_requests or 2 * (self.engine.max_num_seqs + self.engine.max_waiting)
