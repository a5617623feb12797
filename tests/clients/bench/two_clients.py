"""`specserve bench serve` and `vllm bench serve`: the same load, and the same figures of it.

Owns how each is asked and how its results are read. Both are processes that stay, so that what they import is not in
the way. Prompts are a file of ShareGPT's form, which both read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from specserve.models.locate import locate_model
from specserve_bench.prompts.built_in import KINDS, built_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

HERE = Path(__file__).parent
PEERS = HERE.parents[2] / "build" / "peers"
SEED = 7


class Load(NamedTuple):
    num_requests: int
    num_tokens: int
    """Of each answer."""
    concurrency: int
    """Also the requests before, which warm up: the measured ones find their connections made."""


class Figures(NamedTuple):
    """Means of a run, in milliseconds, and its output tokens per second."""

    tokens_per_second: float
    ttft: float
    tpot: float
    itl: float
    e2e: float
    prompt_tokens: int


class Process:
    """A worker; `log` gets what it prints."""

    def __init__(self, python: str, worker: str, log: Path, variables: dict[str, str]) -> None:
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [python, str(HERE / worker)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | variables,
            )
        self._log = log
        self._expect("ready")

    def run(self, arguments: Sequence[str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        self._expect("ended")

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line == word, f"{line or 'it ended'}: {self._log.read_text(errors='replace')[-2000:]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


class Client(Protocol):
    def measure(self, url: str, model: str, load: Load) -> Figures: ...


class Ours:
    def __init__(self, process: Process, folder: Path) -> None:
        self._process, self._folder = process, folder

    def measure(self, url: str, model: str, load: Load) -> Figures:
        out = self._folder / "ours.json"
        self._process.run((
            url, "--model", model, "--prompts", write_prompts(self._folder, load.num_requests),
            "--requests", str(load.num_requests), "--warm-up", str(load.concurrency),
            "--concurrency", str(load.concurrency), "--max-tokens", str(load.num_tokens), "--temperature", "0",
            "--ignore-eos", "--out", str(out),
        ))  # fmt: skip
        summary = json.loads(out.read_text())["summary"]
        assert summary["num_good"] == load.num_requests
        assert summary["output_tokens"] == load.num_requests * load.num_tokens
        means = {name: times["mean"] for name, times in summary["latencies"].items()}
        return Figures(summary["output_tokens_per_second"], **means, prompt_tokens=summary["prompt_tokens"])


class Theirs:
    def __init__(self, process: Process, folder: Path) -> None:
        self._process, self._folder = process, folder

    def measure(self, url: str, model: str, load: Load) -> Figures:
        self._process.run((
            "--backend", "openai", "--base-url", url, "--model", model, "--tokenizer", str(locate_model("demo")),
            "--dataset-name", "sharegpt", "--dataset-path", write_prompts(self._folder, load.num_requests),
            "--disable-shuffle", "--sharegpt-output-len", str(load.num_tokens),
            "--num-prompts", str(load.num_requests), "--num-warmups", str(load.concurrency),
            "--ready-check-timeout-sec", "0", "--max-concurrency", str(load.concurrency), "--temperature", "0",
            "--ignore-eos",
            "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result",
            "--result-dir", str(self._folder), "--result-filename", "theirs.json",
        ))  # fmt: skip
        found = json.loads((self._folder / "theirs.json").read_text())
        assert found["completed"] == load.num_requests
        assert found["total_output_tokens"] == load.num_requests * load.num_tokens
        means = {name: found[f"mean_{theirs}_ms"] for name, theirs in NAMES.items()}
        return Figures(found["output_throughput"], **means, prompt_tokens=found["total_input_tokens"])


NAMES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}
"""Ours: theirs."""


def write_prompts(folder: Path, count: int) -> str:
    """The file's path. vLLM leaves conversations of one turn out."""
    prompts = (built_in(KINDS[number % len(KINDS)], number, SEED).text for number in range(count))
    turns = [{"conversations": [{"from": "human", "value": each}, {"from": "gpt", "value": "-"}]} for each in prompts]
    path = folder / "prompts.json"
    path.write_text(json.dumps(turns))
    return str(path)


def start_ours(folder: Path, **variables: str) -> Process:
    return Process(sys.executable, "specserve_worker.py", folder / "ours.log", variables)


def start_theirs(folder: Path) -> Process:
    variables = {
        "VLLM_CACHE_ROOT": str(PEERS / "cache" / "vllm"), "VLLM_CONFIG_ROOT": str(folder), "VLLM_NO_USAGE_STATS": "1",
    }  # fmt: skip
    return Process(str(PEERS / "vllm" / "bin" / "python"), "vllm_worker.py", folder / "theirs.log", variables)
