"""Runs pytest in each of the folders that are given, as their authors do: in a process of its own, but with what all of
them import imported once, which takes longer than the tests. What each says is in `said.txt` of its folder."""

from __future__ import annotations

import os
import sys

import pytest

import specserve_server.cli  # noqa: F401
import specserve_workbench.testing.engines  # noqa: F401  with torch, which takes most of the time

KIT = ("-q", "-p", "no:cacheprovider", "-p", "specserve_workbench.testing.fixtures")


def run_own_tests(folder: str) -> None:
    os.chdir(folder)
    sys.path[0] = folder
    with open("said.txt", "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    pytest.main([*KIT])
    sys.stdout.flush()


if __name__ == "__main__":
    for each in sys.argv[1:]:
        child = os.fork()
        if child == 0:
            run_own_tests(each)
            sys.exit()
        os.waitpid(child, 0)
