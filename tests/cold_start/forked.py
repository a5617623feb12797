"""Trials in processes that are as fresh as new ones but for torch and aiohttp, whose imports take most of the time.

`python -m cold_start.forked tables|no-tables FORM MODEL_DIR FIRST_SEED COUNT` runs `first_threads` in COUNT children,
one after the other, and prints [seed, exit code, end of its errors] of each that did not exit with 0. The parent uses
nothing of what it imports and starts no thread; everything of ours, and every table, is made in the children.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
from typing import IO

import aiohttp
import torch

MAX_ERRORS = 4000
UNUSED = (aiohttp, torch)


def main(tables: str, form: str, model: str, first: int, count: int) -> None:
    died = []
    for seed in range(first, first + count):
        code, errors = run_forked(tables == "tables", form, model, seed)
        if code:
            died.append((seed, code, errors))
        if code < 0 and tables == "no-tables":  # one killed by a signal shows what it is for
            break
    print(json.dumps(died))


def run_forked(with_tables: bool, form: str, model: str, seed: int) -> tuple[int, str]:
    """Its exit code, negative for a signal as subprocess has it, and the end of what it wrote to standard error."""
    with tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            run_child(with_tables, form, model, seed, errors)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        errors.seek(0)
        return code, errors.read()[-MAX_ERRORS:]


def run_child(with_tables: bool, form: str, model: str, seed: int, errors: IO[str]) -> None:
    """Never returns."""
    os.dup2(errors.fileno(), sys.stderr.fileno())
    code = 1
    try:
        if not with_tables:
            import specserve_checks.struct_tables

            specserve_checks.struct_tables.build_struct_tables = frozenset
        sys.argv[1:] = [form, model, str(seed)]
        runpy.run_module("cold_start.first_threads", run_name="__main__", alter_sys=True)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]))
