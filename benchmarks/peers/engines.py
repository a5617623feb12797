"""Who takes part, and how each is set up: its Python, its variables, the model in its format.

Owns the settings that make the comparison fair: the same threads, bf16, no prefix cache, and for each rival what
its own manual recommends. Knows nothing of cases and tables.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from benchmarks.lib.processes import environment
from benchmarks.lib.workload import DTYPE, MANY, NUM_TOKENS, PROMPT_LEN, SERVE_FLAGS
from benchmarks.peers.engine_process import CrashedError, Program, Worker, last_error
from benchmarks.peers.make_peers import PEERS
from benchmarks.peers.servers import OwnServer, VllmServer
from specserve.models.locate import locate_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.peers.workers.wire import Job, Setup

ROOT = Path(__file__).parents[2]
WORKERS = Path(__file__).parent / "workers"
OURS = "specserve"
TARGETS = {"vllm": 3.0, "openvino": 1.5}
"""What specserve's tokens per second are at least, as a multiple of the rival's."""
EXPORT_LOG = PEERS / "logs" / "openvino-export.log"
MAX_LEN = PROMPT_LEN + NUM_TOKENS + 32
"""Room for the guesses of the last step."""


class Contender(Protocol):
    """Something that serves jobs; loaded when it is first asked."""

    def rate(self, job: Job) -> float:
        """Tokens per second. Raises CrashedError."""

    def close(self) -> None:
        """End its processes."""


class Broken:
    """A contender that could not even be set up."""

    def __init__(self, why: str) -> None:
        self.why = why

    def rate(self, job: Job) -> float:
        raise CrashedError(self.why)

    def close(self) -> None:
        pass


class Field(NamedTuple):
    """What every contender is given."""

    model: str
    threads: int

    def setup(self, way: str, model: str) -> Setup:
        return {
            "model": model,
            "lookup": way == "lookup",
            "threads": self.threads,
            "max_len": MAX_LEN,
            "max_seqs": MANY,
        }


def installed() -> list[str]:
    return [name for name in TARGETS if (PEERS / name / ".made").exists()]


def contenders(names: list[str], way: str, field: Field) -> dict[str, Contender]:
    """Those of `names` that can serve in this way, specserve first."""
    make = {OURS: ours, "vllm": vllm, "openvino": openvino}
    made = {name: make[name](way, field) for name in (OURS, *names)}
    return {name: contender for name, contender in made.items() if contender}


def ours(way: str, field: Field) -> Contender:
    if way == "http":
        return OwnServer(["--threads", str(field.threads), *SERVE_FLAGS, field.model])
    env = {**environment(), "PYTHONPATH": str(ROOT)}
    return Worker(program(OURS, way, sys.executable, env), field.setup(way, field.model))


def vllm(way: str, field: Field) -> Contender:
    cores = sorted(os.sched_getaffinity(0))[: field.threads]
    python = PEERS / "vllm" / "bin" / "python"
    env = {
        **neutral(),
        # Its manual's advice for the CPU; 1.1 to 1.4 times as fast as with GNU's library.
        "LD_PRELOAD": str(PEERS / "vllm" / "lib" / "libiomp5.so"),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CACHE_ROOT": str(PEERS / "cache" / "vllm"),
        "VLLM_NO_USAGE_STATS": "1",
    }
    model = str(locate_model(field.model))
    if way != "http":
        return Worker(program("vllm", way, str(python), env), field.setup(way, model))
    # `vllm serve` looks for a package named vllm and ends; this module is what it starts.
    argv = (
        str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--dtype", DTYPE,
        "--max-model-len", str(MAX_LEN), "--max-num-seqs", str(MANY), "--no-enable-prefix-caching",
        "--generation-config", "vllm", "--disable-uvicorn-access-log",
    )  # fmt: skip
    return VllmServer(Program(argv, env, log("vllm", way)))


def openvino(way: str, field: Field) -> Contender | None:
    """None for HTTP: the library brings no server."""
    if way == "http":
        return None
    python = PEERS / "openvino" / "bin" / "python"
    try:
        model = str(exported(field.model))
    except subprocess.CalledProcessError:
        return Broken(last_error(EXPORT_LOG) or f"the export failed: {EXPORT_LOG}")
    setup = field.setup(way, model)
    return Worker(program("openvino", way, str(python), neutral()), setup)


def exported(model: str) -> Path:
    """The model in OpenVINO's format under build/peers/models, made when it is not there or its source changed."""
    source = locate_model(model).resolve()
    target = PEERS / "models" / (Path(model).name or source.name)
    stamp = target / "source.txt"
    wanted = "\n".join([str(source), *(f"{f.name} {f.stat().st_mtime}" for f in sorted(source.glob("*.safetensors")))])
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        print(f"== exporting {source} to {target}", flush=True)
        EXPORT_LOG.parent.mkdir(parents=True, exist_ok=True)
        command = PEERS / "openvino" / "bin" / "optimum-cli"
        with EXPORT_LOG.open("w", encoding="utf-8") as said:
            subprocess.run(
                [command, "export", "openvino", "--model", source, "--task", "text-generation-with-past",
                 "--weight-format", "fp16", target],
                check=True, env=neutral(), stdout=said, stderr=said,
            )  # fmt: skip
        stamp.write_text(wanted, encoding="utf-8")
    return target


def program(name: str, way: str, python: str, env: Mapping[str, str]) -> Program:
    return Program((python, str(WORKERS / f"{name}_worker.py")), env, log(name, way))


def log(name: str, way: str) -> Path:
    return PEERS / "logs" / f"{name}-{way}.log"


def neutral() -> dict[str, str]:
    """This environment without what is set for specserve alone, and without a network."""
    mine = ("GOMP_", "OMP_", "KMP_", "PYTHON", "MALLOC_", "LD_PRELOAD")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    return {**kept, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "DO_NOT_TRACK": "1"}
