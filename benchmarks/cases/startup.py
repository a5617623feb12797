"""How long a user waits: for `specserve plugins list`, and for a server of the demo model to be ready.

Every round is a process of its own. Files are in the system's cache and bytecode is compiled: one round of
each goes before and does not count.
"""

from __future__ import annotations

import subprocess

from benchmarks.lib.processes import command, environment, server
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate, medians, seconds_of, spread

LIST_TARGET, READY_TARGET = 0.3, 6.0
"""Seconds."""


def run(options: Options) -> Result:
    contenders = {
        "specserve plugins list": lambda: seconds_of(list_plugins),
        "specserve serve, until /health says 200": lambda: until_ready(options.threads),
    }
    taken = alternate(contenders, options.rounds(7, 3))
    middle = medians(taken)
    listing, ready = middle.values()
    return Result(
        title="seconds from starting a process",
        columns=("what", "seconds", "lowest..highest"),
        rows=[(name, f"{seconds:.3f}", spread(taken[name])) for name, seconds in middle.items()],
        checks=[
            Check("specserve plugins list", listing, LIST_TARGET, True, " s"),
            Check("server ready with the demo model", ready, READY_TARGET, True, " s"),
        ],
        raw=taken,
    )


def list_plugins() -> None:
    subprocess.run([*command(), "plugins", "list"], check=True, stdout=subprocess.DEVNULL, env=environment())


def until_ready(threads: int) -> float:
    with server("--threads", str(threads)) as started:
        return started.seconds
