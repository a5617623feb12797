"""`make gpu-check`: the tests of this folder in parts of less than eight minutes each, and one summary.

Every file runs in a process of its own, with a time limit: an illegal address poisons a process, and a hang must leave
the others their time. Logs go to `--logs`. Needs nothing but Python; what the tests need, `preflight` says.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from declared import declare

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DECLARED = ROOT / "build" / "gpu-declared"
BY_ITSELF = ("-p", "no:cacheprovider", "-q", "--durations=8")


class Task(NamedTuple):
    """A command and its time limit in seconds. `workers`: how many tests at a time, where pytest-xdist is installed."""

    name: str
    seconds: int
    arguments: tuple[str, ...]
    workers: int = 1

    @property
    def is_pytest(self) -> bool:
        return self.arguments[0].endswith(".py")


PARTS = {
    "kernels": [
        Task("kernels", 200, ("test_gpu_kernels.py",)),
        Task("paged", 180, ("test_gpu_paged.py",)),
        Task("sampling", 80, ("test_gpu_sampling.py",)),
    ],
    "engine": [
        Task("parity", 90, ("test_gpu_parity.py",), 4),
        Task("engine", 90, ("test_gpu_engine.py",)),
        Task("plugins", 90, ("test_gpu_plugins.py",), 4),
        Task("hybrid", 80, ("test_gpu_hybrid.py",), 4),
        Task("lossless", 120, ("test_gpu_lossless.py",), 6),
    ],
    "graphs": [Task("graphs", 240, ("test_gpu_graphs.py",), 2), Task("mixers", 150, ("test_gpu_mixers.py",), 4)],
    "numbers": [
        Task("tables", 200, ("test_gpu_tables.py", "-m", "table", "-s")),
        Task("tiles", 200, ("-m", "benchmarks", "tiles")),
        Task("cudahost", 60, ("-m", "benchmarks", "--quick", "cudahost")),
    ],
    "speed": [Task("speed", 470, ("-m", "benchmarks", "gpu"))],
    "memory": [
        Task("memcheck-paged", 240, ("test_gpu_paged.py", "-k", "near_float64 or broken")),
        Task("memcheck-linear", 220, ("test_gpu_kernels.py", "-k", "linear_is_near and bfloat16")),
    ],
}
SANITIZER = ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9")


class Outcome(NamedTuple):
    name: str
    said: str
    seconds: float
    log: Path
    good: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--logs", type=Path, default=Path(os.environ.get("OUT") or ROOT / "build" / "gpu-check"))
    args = parser.parse_args()
    if subprocess.run([sys.executable, HERE / "preflight.py"], check=False).returncode:
        return 1
    args.logs.mkdir(parents=True, exist_ok=True)
    for plugin in ("cuda", "graphs"):
        declare(ROOT / "plugins" / plugin, DECLARED)
    outcomes = []
    for part in args.parts or PARTS:
        if part == "memory" and shutil.which(SANITIZER[0]) is None:
            print(f"== {part}: skipped, {SANITIZER[0]} is not on the PATH", flush=True)
            continue
        for task in PARTS[part]:
            outcomes.append(run(task, args.logs, SANITIZER if part == "memory" else ()))
    print("\n== summary")
    for outcome in outcomes:
        print(f"{outcome.name:<16}{outcome.seconds:5.0f} s  {outcome.said}  ({outcome.log})")
    bad = [outcome.name for outcome in outcomes if not outcome.good]
    print(f"== failed: {', '.join(bad)}" if bad else "== all passed")
    return 1 if bad else 0


def run(task: Task, logs: Path, prefix: tuple[str, ...]) -> Outcome:
    print(f"== {task.name}: at most {task.seconds} s", flush=True)
    log, began = logs / f"{task.name}.log", time.monotonic()
    path = os.pathsep.join(filter(None, (str(DECLARED), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path}
    if prefix:
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    with (
        log.open("w") as file,
        subprocess.Popen(
            [*prefix, sys.executable, *command(task)],
            cwd=ROOT,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            code = process.wait(task.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with workers, and what a checker started
            code = None
    lines = log.read_text(errors="replace").splitlines()
    for line in lines:
        if line.startswith(("FAILED", "ERROR", "XPASS")):
            print(line[:200])
    if not task.is_pytest:
        print("\n".join(lines))
    last = next((line for line in reversed(lines) if re.search(r"\d (passed|failed|error|skipped)", line)), "")
    said = f"no end after {task.seconds} s" if code is None else last.strip("= ") or f"exit code {code}"
    return Outcome(task.name, said, time.monotonic() - began, log, code == 0)


def command(task: Task) -> list[str]:
    if not task.is_pytest:
        return list(task.arguments)
    file, *rest = task.arguments
    parallel = task.workers > 1 and importlib.util.find_spec("xdist") is not None
    workers = ["-n", str(task.workers)] if parallel else []
    return ["-m", "pytest", "-c", str(HERE / "pytest.ini"), *BY_ITSELF, *workers, str(HERE / file), *rest]


if __name__ == "__main__":
    sys.exit(main())
