"""Checks of Triton kernels without a GPU, in a process of their own: its import decides whether Triton interprets.

A script of checks prints one JSON object, the name of each check to "ok" or its traceback; tests read it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed here (the dev group has it for Linux)"
)


COMPILED = Path(__file__).parents[1] / "build" / "triton"
"""Where Triton keeps what it compiled, by a hash of the source and of all that the binary depends on."""


def outcomes(script, *arguments, **environment):
    """What a module of checks, run as a script, says of each."""
    here = Path(__file__).parent
    path = os.pathsep.join(filter(None, (str(here), str(here / "sampling"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, script.__file__, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(COMPILED), **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def outcome(check, *arguments):
    try:
        check(*arguments)
    except Exception:
        return traceback.format_exc()
    return "ok"


def ptx_for_sm90(kernel, pointers, integers, constants, *, floats=(), free=(), **options):
    """The PTX for sm_90 as a CUDA launch would make it: aligned pointers, integers in multiples of 16 unless `free`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kinds = dict.fromkeys(constants, "constexpr") | pointers
    kinds |= dict.fromkeys(integers, "i32") | dict.fromkeys(floats, "fp32")
    aligned = [name for name in (*pointers, *integers) if name not in free]
    source = ASTSource(
        fn=kernel,
        signature={name: kinds[name] for name in kernel.arg_names},
        constexprs={name: constants[name] for name in kernel.arg_names if name in constants},
        attrs={(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert len(built.asm["cubin"]) > 1000
    return built.asm["ptx"]
