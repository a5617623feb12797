"""Start-up time: of `specserve plugins list`, and of a server of the demo model until it is ready.

Every round is a process of its own. Files are in the page cache and bytecode is compiled: the first round is not
counted.
"""

from __future__ import annotations

import subprocess

from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate, medians, seconds_of, spread
from specserve_bench.served.server_process import command, environment, server

LIST_TARGET, READY_TARGET = 0.3, 6.0
"""Seconds."""


def run(options: Options) -> Result:
    variants = {
        "specserve plugins list": lambda: seconds_of(list_plugins),
        "specserve serve, until /health says 200": lambda: seconds_until_ready(options.threads),
    }
    samples = alternate(variants, options.rounds(7, 3))
    median = medians(samples)
    listing, ready = median.values()
    return Result(
        title="seconds from the start of a process",
        columns=("what", "seconds", "min..max"),
        rows=[(name, f"{seconds:.3f}", spread(samples[name])) for name, seconds in median.items()],
        checks=[
            Check("specserve plugins list", listing, LIST_TARGET, True, " s"),
            Check("server ready with the demo model", ready, READY_TARGET, True, " s"),
        ],
        raw=samples,
    )


def list_plugins() -> None:
    subprocess.run([*command(), "plugins", "list"], check=True, stdout=subprocess.DEVNULL, env=environment())


def seconds_until_ready(threads: int) -> float:
    with server("--threads", str(threads)) as started:
        return started.seconds
