"""`vllm bench serve` as a process that stays: each line of standard input is the list of its arguments, as JSON.

Runs in vLLM's environment. The program `vllm` looks for a package of that name, which vLLM's CPU build is not; what it
would call is called here. A line on standard output says that a run has ended; all that vLLM prints goes to standard
error.
"""

from __future__ import annotations

import contextlib
import json
import sys

import look_ups
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

look_ups.in_the_loops_thread()
parser = FlexibleArgumentParser()
add_cli_args(parser)
print("ready", flush=True)
for line in sys.stdin:
    with contextlib.redirect_stdout(sys.stderr):
        main(parser.parse_args(json.loads(line)))
    print("ended", flush=True)
