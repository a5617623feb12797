"""A model's work, from its configuration and the headers of its files: nothing is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import ConfigError
from specserve_bench.roofline.work import work_of
from specserve_server.config import ServerConfig
from specserve_workbench.doctor.case import Case
from specserve_workbench.doctor.model_memory import cache_shape
from specserve_workbench.doctor.needed import UnknownError

if TYPE_CHECKING:
    from specserve.config import EngineConfig
    from specserve_bench.roofline.work import Work


class Examined(NamedTuple):
    work: Work
    parameters: int
    dtype: str
    """That is served."""
    threads: int


def examine(config: EngineConfig) -> Examined:
    """Raises ConfigError where the model is not on this machine, or has experts, or runs on another device."""
    if config.device != "cpu":
        raise ConfigError(f"bench model measures CPUs only; got device {config.device}.")
    case = Case(config, ServerConfig())
    try:
        case.path()
        model, weights, resolved = case.model_config(), case.weights(), case.resolved()
        case.kernels()  # before attention backends are asked
        kv_bytes = cache_shape(case).bytes_per_block(resolved.block_size) // resolved.block_size
    except UnknownError as error:
        raise ConfigError(f"bench model: {config.model}: {error}.") from error
    if model.experts is not None:
        raise ConfigError(
            f"bench model: {config.model} has experts, and which of them a step reads depends on its tokens: "
            "measure it with `specserve bench sweep`."
        )
    assert resolved.threads is not None, "resolved"
    work = work_of(model, weights.parameters, weights.served, kv_bytes)
    return Examined(work, weights.parameters, resolved.dtype, resolved.threads)
