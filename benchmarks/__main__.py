"""`python -m benchmarks [CASE...]`: run cases, print their tables, save their measurements as JSON.

Owns the command line. Several cases run in a process each, so that none inherits another's threads, memory or imports.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.lib.report import Options, Result, render, save
from specserve.host_cores import usable_cores

if TYPE_CHECKING:
    from collections.abc import Sequence

CASES = {
    "overhead": "CPU time of an engine step around a stub model",
    "single": "one request against transformers' generate: throughput, TTFT, TPOT",
    "batch": "throughput of 32 concurrent requests against one",
    "flood": "time between tokens while a client floods the server with long prompts, with one process and with two",
    "http": "throughput of 32 streaming HTTP clients against the engine alone",
    "limits": "time between tokens of 8 streams beside idle connections, slow readers and a flood",
    "latency": "TTFT, and inter-token latency while a long prompt joins",
    "startup": "seconds until `plugins list` ends, and until a server is ready",
    "bitrule": "prefill with and without batch invariance",
    "kernels": "a forward pass against memory bandwidth, attention and prefill against plain torch",
    "roofline": "prompts and decoding against the most multiply-accumulates of the cores, by instruction set",
    "weights": "weights, keys and values of 8 bits against bfloat16: loss on held-out text, decoding speed",
    "weights4": "GGUF files against llama.cpp (`make_peers llamacpp` installs it); the cost of verifying drafts; loss",
    "growth": "cost of a decode step over context length and concurrent requests",
    "hybrid": "one attention backend alone, and as both halves of a hybrid",
    "lora": "throughput on the base model, under one adapter and under eight",
    "speculation": "throughput with n-gram speculation against plain decoding",
    "eagle": "throughput with the demo model's EAGLE-3 head, alone and beside n-gram drafts",
    "block": "drafting a block of seven tokens in one pass against EAGLE-3, one token and seven",
    "grammar": "structured output: masks against none, drafts of forced text against masks alone",
    "heads_elsewhere": "our heads in llama.cpp and vLLM, which `make_peers` installs: tokens of a step there and here",
    "never_slower": "every drafter against plain decoding: edits, code and prose, greedy and sampled, 1 to 32 requests",
    "adaptive": "fixed draft widths, tiers and ranked where text begins and ends to repeat itself",
    "families": "a mixture of experts against a dense model that reads as many weights for a token",
    "state": "models with short convolutions or gated delta nets: steps, verifying, drafts, a prompt; other engines",
    "peers": "throughput against vLLM and OpenVINO GenAI, which `make bench-peers` installs",
    "grammar_peers": "structured output against vLLM, which `make bench-peers` installs",
    "gpu": "on a CUDA device: the demo model and an 8B shape, plain, drafted and under adapters, against transformers",
    "tiles": "on a CUDA device: the linear kernel by tile against cuBLAS, and whether bits depend on the tile",
    "cudahost": "launches and host time of a CUDA step, without a device",
    "index": "cost of the n-gram index by its size; no model",
    "routing": "routing policies over simulated replicas: prefix hits and waiting times",
    "replay": "acceptance length of n-gram drafters on recorded texts; no model (downloads packages)",
}
ON_CUDA = ("gpu", "tiles")
"""Run only where they are named."""
ALIASES = {"pays": "speculation"}
FLAGS = {
    "never_slower": "[--beside ngram|eagle|fixed...] [--texts edit|code|prose...] [--temperatures T...] "
    "[--counts N...] [--rounds N]",
    "adaptive": "[--drafters ngram|eagle|both...] [--counts N...] [--rounds N] [--plot FILE]",
    "heads_elsewhere": "[--models demo|smollm2...] [--head HEAD] [--steps N...] [--against llamacpp|vllm...] "
    "[--prompts N]",
    "roofline": "[--sets SET...]",
    "kernels": "[--model demo|SHAPE|DIR]",
    "weights": "[--model demo|SHAPE|DIR] [--counts N...] [--kinds KIND...] [--rounds N]",
    "weights4": "--files FILE... [--llama-server PROGRAM] [--cells [N...]] [--rounds N]",
    "state": "[--model lfm2|qwen3_5] [--against llamacpp|transformers...] [--weights auto|int8] [--llama-server FILE] "
    "[--llama-sources DIR] [--rounds N] [--skip-steps]",
    "growth": "[--contexts N...] [--counts N...] [--plot FILE]",
    "routing": "[--sizes N...] [--plot FILE]",
    "replay": "[--budgets N...] [--drafters NAME...] [--kinds KIND...] [--traces DIR]",
    "peers": "[--model demo|SHAPE|DIR] [--weights auto|int8] [--activations auto|int8] [--counts N...] "
    "[--against PEER...]",
    "grammar_peers": "[--counts N...] [--temperatures T...] [--rounds N]",
}
"""Flags that a case parses itself; it must be the only case then."""


def main(argv: Sequence[str] | None = None) -> int:
    """0 if every case ran, whether or not it met its targets; 1 if one failed to run."""
    args, rest = parser().parse_known_args(argv)
    cases = args.cases or [case for case in CASES if case not in ON_CUDA]
    if rest and (len(cases) > 1 or cases[0] not in FLAGS):
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    if len(cases) == 1:
        run_here(cases[0], Options(args.threads, args.quick, args.profile, tuple(rest)))
        return 0
    switches = [flag for flag, on in (("--quick", args.quick), ("--profile", args.profile)) if on]
    command = [sys.executable, "-m", "benchmarks", f"--threads={args.threads}", *switches]
    failed = [case for case in cases if subprocess.run([*command, case], check=False).returncode]
    if failed:
        print(f"failed to run: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    listing = "\n".join(f"  {name:<16}{what}" for name, what in CASES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"Ratios within one run, medians of alternating rounds.\n\ncases:\n{listing}",
        epilog="\n".join(f"{name} also takes {flags}" for name, flags in FLAGS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", type=case_name, metavar="CASE", help="which cases to run; default: all")
    parser.add_argument(
        "--threads", type=int, default=usable_cores(), help="CPU threads of every variant; default: all"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to see that it runs, not to quote")
    parser.add_argument("--profile", action="store_true", help="also print a profile (overhead, single)")
    return parser


def case_name(name: str) -> str:
    name = ALIASES.get(name, name)
    if name not in CASES:
        raise argparse.ArgumentTypeError(f"no case is named {name!r}; there are: {', '.join(CASES)}")
    return name


def run_here(case: str, options: Options) -> None:
    load_before = os.getloadavg()
    result: Result = importlib.import_module(f"benchmarks.cases.{case}").run(options)
    print(render(case, result), flush=True)
    path = save(case, result, options, load_before)
    print(f"saved to {os.path.relpath(path)}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
