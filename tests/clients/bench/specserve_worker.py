"""`specserve bench serve` as a process that stays: each line of standard input is the list of its arguments, as JSON.

A line on standard output says that a run has ended with exit code 0; what the command prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import sys

import look_ups

from specserve_server.cli import main

look_ups.in_the_loops_thread()
print("ready", flush=True)
for line in sys.stdin:
    with contextlib.redirect_stdout(sys.stderr):
        code = main(["bench", "serve", *json.loads(line)])
    assert code == 0, code
    print("ended", flush=True)
