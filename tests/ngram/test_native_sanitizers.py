"""The C++ index under the sanitizers: `native/stress`, built by the compiler alone and run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from native_builds import COMPILER, compiled_stress

NATIVE = Path(__file__).parents[2] / "plugins" / "ngram" / "native"
# One caller meets the index's own thread, whatever the match type.
NUM_MATCH_TYPES = {"thread": "1", "address,undefined": "3"}

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


def built(sanitizers: str) -> Path:
    flags = ["-std=c++17", f"-I{NATIVE}", "-g1", "-O1", "-ffp-contract=off", "-fno-omit-frame-pointer"]
    flags += ["-fno-sanitize-recover=all", f"-fsanitize={sanitizers}", "-pthread"]
    return compiled_stress(f"ngram-stress-{sanitizers.replace(',', '-')}", NATIVE, flags)


@pytest.mark.parametrize("sanitizers", NUM_MATCH_TYPES)
def test_the_index_is_clean_under_load(sanitizers: str) -> None:
    program = built(sanitizers)
    command = [program, "3", NUM_MATCH_TYPES[sanitizers]]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if "unexpected memory mapping" in run.stderr:
        pytest.skip("this kernel's address layout is unknown to the thread sanitizer")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout == "stress: ok\n"
    assert run.stderr == ""
