"""The stress program of the C++ kernels under emulation: rows alone and among others, and a plain reference."""

from __future__ import annotations

import pytest
from emulated import NEWEST, PLAIN, PROCESSORS, program
from places import STRESS

ENDS_WITH = "stress: ok with "


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """The instruction sets that each processor has, fastest first, all of which held."""
    return {processor: stress(processor) for processor in PROCESSORS}


def stress(processor: str) -> list[str]:
    run = program(processor, STRESS / "stress", 0, seconds=3600)
    assert run.returncode == 0, run.stdout + run.stderr
    last = run.stdout.splitlines()[-1]
    assert last.startswith(ENDS_WITH), run.stdout
    return last.removeprefix(ENDS_WITH).split()


def test_the_kernels_hold_on_every_instruction_set_that_a_processor_has(found: dict[str, list[str]]) -> None:
    assert found == {PLAIN: ["neon", "portable"], NEWEST: ["neon_bf16", "neon_i8mm", "neon_dot", "neon", "portable"]}
