"""What fused layers are held to: the bits of their pieces, with adapters too, and no draft changes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from native_cases import SETS
from test_cpu_adapters import engine_with_adapters, requests_with_adapters
from test_cpu_fused import in_pieces, passes, same_decisions
from test_cpu_int8_engine import noisy

from specserve.models.tiled import TiledPass
from specserve_cpu.fused import FusedPass, SplitPass
from specserve_workbench.testing.engines import accepted, assert_lossless, make_engine, run_requests
from specserve_workbench.testing.requests import varied_requests

if TYPE_CHECKING:
    from pathlib import Path


def options(isa: str = SETS[0], **more: Any) -> dict[str, Any]:
    cpu = {"instruction_set": isa} | more.pop("cpu", {})
    return {"plugins": ("cpu",), "plugin_options": {"cpu": cpu}, **more}


def assert_the_bits_of_the_pieces(model: Path, kind: type, num_requests: int, fused: Any, pieces: Any = None) -> None:
    """kind: of the pass that serves. fused, pieces: options of both engines; None: the same."""
    requests = varied_requests(num_requests)
    served, other = (make_engine(model, **chosen) for chosen in (fused, pieces or fused))
    assert isinstance(passes(served), kind)
    assert same_decisions(run_requests(served.engine, requests), run_requests(in_pieces(other.engine), requests))


def assert_adapters_have_the_bits_of_the_pieces(model: Path, attention: str, dtype: str) -> None:
    fused, pieces, plain = (engine_with_adapters(model, dtype=dtype, attention=attention) for _ in range(3))
    assert isinstance(fused.runner.passes, FusedPass if attention == "auto" else SplitPass)
    pieces.runner.passes = TiledPass(pieces.runner.model, pieces.runner.attention, None)
    requests = requests_with_adapters("a", "", "b")
    adapted = run_requests(fused, requests).decided()
    assert adapted == run_requests(pieces, requests).decided()
    assert adapted != run_requests(plain, requests_with_adapters("", "", "")).decided()


def assert_draft_trees_are_lossless(model: Path, num_requests: int, **chosen: Any) -> None:
    served = assert_lossless(model, varied_requests(num_requests), noisy, **options(**chosen))
    right, drafted = accepted(served)
    assert 0.2 * drafted < right < drafted
