"""The stress program of the C++ kernels under emulation: rows alone and among others, and a plain reference."""

from __future__ import annotations

import pytest
from emulated import NEWEST, PLAIN, PROCESSORS, program
from places import STRESS

Found = dict[str, tuple[str, list[str]]]
BEGINS_WITH, ENDS_WITH = "stress: bits ", "stress: ok with "


@pytest.fixture(scope="module")
def found() -> Found:
    """Of each processor: the digest of the sets that compute alike, and its instruction sets, fastest first."""
    return {processor: stress(processor) for processor in PROCESSORS}


def stress(processor: str) -> tuple[str, list[str]]:
    run = program(processor, STRESS / "stress", 0, seconds=600)
    assert run.returncode == 0, run.stdout + run.stderr
    first, *_, last = run.stdout.splitlines()
    assert last.startswith(ENDS_WITH), run.stdout
    assert first.startswith(BEGINS_WITH), run.stdout
    return first.removeprefix(BEGINS_WITH).split()[0], last.removeprefix(ENDS_WITH).split()


def test_the_kernels_hold_on_every_instruction_set_that_a_processor_has(
    found: Found,
) -> None:
    sets = {processor: each for processor, (_, each) in found.items()}
    assert sets == {PLAIN: ["neon", "portable"], NEWEST: ["neon_bf16", "neon_i8mm", "neon_dot", "neon", "portable"]}


def test_processors_with_and_without_products_of_bytes_have_the_same_bits(
    found: Found,
) -> None:
    assert found[PLAIN][0] == found[NEWEST][0]
