"""Tests of tests/cpu, unchanged, in a Python for aarch64: all instruction sets that the newest processor has."""

from __future__ import annotations

import re

from emulated import NEWEST, python

PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not gpu")
"""Sweeps too: nothing else runs them on ARM."""
KERNELS = {
    "linear": "output_does_not_depend or not_a_number or strided",
    "rowwise": "activation_of_extreme_gates or strided or norm_is_near_float64",
    "attention": "draft_token_of_a_tree or stored_in_the_rows_slots",
    "sampler": "noise_is_that_of_the_core or equal_maxima",
    "int8": "output_does_not_depend or not_a_number",
    "coded": "number_of_rows_changes or rounded_by_blocks",
    "gated_delta_net": "chunks_neighbours_and_threads or states_are_saved",
}
"""Of tests/cpu/test_cpu_NAME.py, what pytest's -k chooses: bits of rows, and definitions. Seconds under emulation."""


def test_tests_of_the_kernels_pass_in_a_python_for_aarch64() -> None:
    chosen = " or ".join(f"(test_cpu_{name} and ({which}))" for name, which in KERNELS.items())
    files = [f"tests/cpu/test_cpu_{name}.py" for name in KERNELS]
    said = python(NEWEST, *PYTEST, *files, "-k", chosen, seconds=3600)
    passed = re.search(r"(\d+) passed", said)
    assert passed, said
    assert int(passed[1]) >= 350, "about 500 are chosen, a fifth fewer where qemu lacks bfloat16\n" + said
