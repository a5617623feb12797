"""The Serve application: replicas with an engine each, and the ingress in front of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from ray import serve
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.schema import LoggingConfig

from specserve.errors import ConfigError
from specserve_ray.config_file import read_configuration
from specserve_ray.ingress import Ingress
from specserve_ray.names import INGRESS, REPLICAS
from specserve_ray.replica import Replica
from specserve_ray.router import PolicyRouter

if TYPE_CHECKING:
    from ray.serve import Application

    from specserve_ray.config import Configuration


def app(arguments: dict[str, str]) -> Application:
    """Of `serve run specserve_ray:app config=CONFIG.toml`. Raises ConfigError."""
    if set(arguments) != {"config"}:
        got = ", ".join(arguments) or "nothing"
        raise ConfigError(f"specserve_ray:app has one argument, config=CONFIG.toml; got {got}.")
    return build_app(read_configuration(Path(arguments["config"])))


def build_app(configuration: Configuration) -> Application:
    """For `serve.run`. Every replica loads the model; nothing is started here."""
    logs = LoggingConfig(
        log_level=configuration.server.log_level.upper(),
        encoding=configuration.server.log_format.upper(),
        enable_access_log=False,
    )
    replicas = serve.deployment(
        Replica,
        name=REPLICAS,
        ray_actor_options=actor_options(configuration),
        max_ongoing_requests=configuration.max_ongoing_requests,
        graceful_shutdown_timeout_s=configuration.server.drain_seconds,
        health_check_period_s=configuration.ray.health_check_period,
        health_check_timeout_s=configuration.ray.health_check_timeout,
        request_router_config=router_config(configuration),
        logging_config=logs,
        **number_of_replicas(configuration),
    )
    ingress = serve.deployment(
        Ingress,
        name=INGRESS,
        num_replicas=configuration.ray.ingresses,
        ray_actor_options={"num_cpus": 0},  # it waits for others; the cores are the engines'
        max_ongoing_requests=100_000,
        graceful_shutdown_timeout_s=configuration.server.drain_seconds,
        logging_config=logs,
    )
    return ingress.bind(replicas.bind(configuration), configuration)


def actor_options(configuration: Configuration) -> dict[str, object]:
    ray = configuration.ray
    return {"num_cpus": configuration.cpus, "num_gpus": ray.gpus, "resources": ray.resources}


def router_config(configuration: Configuration) -> RequestRouterConfig:
    return RequestRouterConfig(
        request_router_class=f"{PolicyRouter.__module__}.{PolicyRouter.__name__}",
        request_router_kwargs=msgspec.structs.asdict(configuration.ray.routing),
        request_routing_stats_period_s=configuration.ray.stats_period,
    )


def number_of_replicas(configuration: Configuration) -> dict[str, object]:
    scaling = configuration.ray.autoscaling
    if scaling is None:
        return {"num_replicas": configuration.ray.replicas}
    return {
        "autoscaling_config": AutoscalingConfig(
            min_replicas=scaling.min_replicas,
            max_replicas=scaling.max_replicas,
            target_ongoing_requests=scaling.target_ongoing_requests,
            upscale_delay_s=scaling.upscale_delay,
            downscale_delay_s=scaling.downscale_delay,
        )
    }
