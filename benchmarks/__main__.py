"""`python -m benchmarks [NAME...]`: run benchmarks, print their tables, keep their figures as JSON.

Owns the command line. Several benchmarks run in a process each, so that none inherits another's threads,
memory or imports.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.lib.report import Options, Result, keep, show

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = {
    "overhead": "the engine around a model that costs nothing",
    "single": "one request against transformers generate",
    "batch": "32 requests at once against one",
    "http": "32 streaming HTTP clients against the engine alone",
    "latency": "first token, and gaps between tokens while a long prompt joins",
    "startup": "the plugin list, and a server until it is ready",
    "bitrule": "what equal bits for every batch shape cost in prefill",
    "kernels": "a forward pass against the memory's speed, attention and prefill against plain torch",
    "growth": "a decode step over its context and over its requests, and attention's share",
    "hybrid": "one attention backend alone, and as both halves of a hybrid",
    "lora": "the same requests on the base model, under one adapter and under eight",
    "speculation": "requests with n-gram speculation against the same without",
    "peers": "the same requests in vLLM and OpenVINO GenAI, where `make bench-peers` made them",
    "index": "what the n-gram index costs by its size, no model",
    "replay": "n-gram drafters on real texts taken as outputs, no model (fetches packages)",
}
OLD_NAMES = {"pays": "speculation"}
FLAGS = {
    "kernels": "[--model demo|half-billion|DIR]",
    "growth": "[--contexts N...] [--counts N...] [--plot FILE]",
    "replay": "[--budgets N...] [--drafters NAME...] [--kinds KIND...] [--traces DIR]",
    "peers": "[--model DIR] [--counts N...] [--workloads NAME...] [--against PEER...]",
}
"""Flags that a benchmark reads itself; it must be the only one named."""


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every benchmark ran, whatever its figures; 1 when one failed to run."""
    args, rest = parser().parse_known_args(argv)
    names = args.names or list(NAMES)
    if rest and (len(names) > 1 or names[0] not in FLAGS):
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    if len(names) == 1:
        run_here(names[0], Options(args.threads, args.quick, args.profile, tuple(rest)))
        return 0
    switches = [flag for flag, on in (("--quick", args.quick), ("--profile", args.profile)) if on]
    again = [sys.executable, "-m", "benchmarks", f"--threads={args.threads}", *switches]
    failed = [name for name in names if subprocess.run([*again, name], check=False).returncode]
    if failed:
        print(f"failed to run: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    listing = "\n".join(f"  {name:<13}{what}" for name, what in NAMES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"Ratios within one run, medians of alternating rounds.\n\nbenchmarks:\n{listing}",
        epilog="\n".join(f"{name} also takes {flags}" for name, flags in FLAGS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", type=known, metavar="NAME", help="which ones; default: all")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="CPU threads of every contender; default: all"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to see that it runs, not to quote")
    parser.add_argument("--profile", action="store_true", help="also print where the time goes (overhead, single)")
    return parser


def known(name: str) -> str:
    name = OLD_NAMES.get(name, name)
    if name not in NAMES:
        raise argparse.ArgumentTypeError(f"no benchmark is named {name!r}; there are: {', '.join(NAMES)}")
    return name


def run_here(name: str, options: Options) -> None:
    load_before = os.getloadavg()
    result: Result = importlib.import_module(f"benchmarks.cases.{name}").run(options)
    print(show(name, result), flush=True)
    path = keep(name, result, options, load_before)
    print(f"kept in {os.path.relpath(path)}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
