"""LoRA adapters in native layers: near float64, with the bits of the pieces, whatever adapters the other rows have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from native_cases import DTYPES, SETS, assert_near, each_dtype, each_set, machine, randn, same_bits, some

from covering import covering
from specserve.batch.lora_plan import LoraPlan, Segment
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve.models.lowrank_delta import LowRankDelta
from specserve.models.tiled import TiledPass
from specserve.protocols import LoraPlanner, LowRankPart
from specserve_cpu.adapters import PackedAdapter
from specserve_cpu.attention import native_module
from specserve_cpu.fused import FusedPass, SplitPass
from specserve_cpu.kernels import CpuKernels
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import varied_requests
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.batch.batch import Batch
    from specserve.types import GenerateRequest

RANKS = {"a": 4, "b": 7, "c": 33}


class Adapters(LoraPlanner):
    """Random adapters a, b and c on every projection but the head, and on some parts of it only."""

    @hookimpl
    def adapt_model(self, model: Any) -> None:
        self.packed = {
            name: model.kernels.pack_adapter(
                {p.name: parts_of(p, rank, model.dtype) for p in model.projections.values() if p.name != "lm_head"}
            )
            for name, rank in RANKS.items()
        }
        for projection in model.projections.values():
            if projection.name != "lm_head":
                projection.add_delta(LowRankDelta(projection.name, model.kernels))

    @hookimpl
    def make_lora_planner(self) -> Adapters:
        return self

    def plan(self, batch: Batch) -> LoraPlan:
        spans = zip(batch.spans, batch.row_offsets, batch.query_lens, strict=True)
        return LoraPlan(tuple(Segment(at, at + n, self.packed.get(s.adapter)) for s, at, n in spans))


def parts_of(projection: Any, rank: int, dtype: torch.dtype) -> tuple[LowRankPart, ...]:
    seed = sum(projection.name.encode()) + rank
    return tuple(
        LowRankPart(
            randn(rank, projection.in_features, dtype=dtype, seed=seed + i, scale=0.3),
            randn(outs.stop - outs.start, rank, dtype=dtype, seed=seed + 9 + i, scale=0.3),
            outs,
        )
        for i, outs in enumerate(projection.parts.values())
        if (i + rank) % 3 or len(projection.parts) == 1
    )


def requests_with_adapters(*adapters: str) -> list[GenerateRequest]:
    plain = varied_requests(2 * len(adapters))
    return [msgspec.structs.replace(r, adapter=adapters[i % len(adapters)]) for i, r in enumerate(plain)]


def engine_with_adapters(model: Path, **options: Any) -> Any:
    declaration = PluginDeclaration(name="adapters", provides={"lora.target": "a test's"})
    extra = {"adapters": InProcessPlugin(Adapters(), declaration)}
    return make_engine(model, plugins=("cpu",), extra=extra, **options).engine


@covering(("isa", "dtype"), ("attention", "dtype"), isa=SETS, dtype=DTYPES, attention=["auto", "sdpa"])
def test_layers_with_adapters_have_the_bits_of_the_pieces(
    toy_model: Path, isa: str, dtype: torch.dtype, attention: str
) -> None:
    options: dict[str, Any] = {
        "plugin_options": {"cpu": {"instruction_set": isa}}, "dtype": str(dtype).partition(".")[2],
        "attention": attention, "max_num_batched_tokens": 100,
    }  # fmt: skip
    fused, pieces = (engine_with_adapters(toy_model, threads=n, **options) for n in (2, 1))
    assert isinstance(fused.runner.passes, FusedPass if attention == "auto" else SplitPass)
    pieces.runner.passes = TiledPass(pieces.runner.model, pieces.runner.attention, None)
    requests = requests_with_adapters("a", "", "b", "c")
    assert run_requests(fused, requests).decided() == run_requests(pieces, requests).decided()


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "mistral": {"sliding_window": 16},
    "qwen3": {"head_dim": 64, "num_key_value_heads": 1},
    "qwen3_moe": {"num_hidden_layers": 3, "mlp_only_layers": [1], "num_experts_per_tok": 4},
    "olmoe": {},
    "granitemoe": {},
    "mixtral": {"num_local_experts": 7},
}


@covering(architecture=FAMILIES, dtype=DTYPES)
def test_other_families_take_adapters_too(tmp_path: Path, architecture: str, dtype: torch.dtype) -> None:
    """Experts' and routers', too."""
    model = write_checkpoint(tmp_path, architecture=architecture, **FAMILIES[architecture])
    fused, pieces = (engine_with_adapters(model, dtype=str(dtype).partition(".")[2], threads=n) for n in (2, 1))
    assert isinstance(fused.runner.passes, FusedPass)
    pieces.runner.passes = TiledPass(pieces.runner.model, pieces.runner.attention, None)
    requests = requests_with_adapters("a", "", "b")
    assert run_requests(fused, requests).decided() == run_requests(pieces, requests).decided()


@each_dtype
@pytest.mark.parametrize("weights", ["auto", "int8", "int4"])
@pytest.mark.parametrize("sizes", [{"hidden_size": 7}, {"intermediate_size": 9}], ids=["hidden", "intermediate"])
def test_models_of_odd_sizes_take_adapters_whatever_their_weights_become(
    tmp_path: Path, dtype: torch.dtype, weights: str, sizes: dict[str, int]
) -> None:
    """Adapters keep the model's dtype, in which inputs are padded."""
    model = write_checkpoint(tmp_path, **{"head_dim": 32, **sizes})
    options = {"dtype": str(dtype).partition(".")[2], "plugin_options": {"cpu": {"weights": weights}}}
    engine, pieces = (engine_with_adapters(model, **options) for _ in range(2))
    pieces.runner.passes = TiledPass(pieces.runner.model, pieces.runner.attention, None)
    requests = requests_with_adapters("a", "", "b")
    assert run_requests(engine, requests).decided() == run_requests(pieces, requests).decided()


@each_dtype
def test_adapters_of_other_rows_do_not_change_a_row(toy_model: Path, dtype: torch.dtype) -> None:
    engine = engine_with_adapters(toy_model, dtype=str(dtype).partition(".")[2], prefix_cache=False)
    plain = make_engine(toy_model, plugins=("cpu",), dtype=str(dtype).partition(".")[2]).engine
    requests = requests_with_adapters("a", "", "b", "c")
    together = run_requests(engine, requests).decided()
    changed = 0
    for request in requests:
        alone = run_requests(engine, [request]).decided()[request.request_id]
        assert alone == together[request.request_id]
        of_base = msgspec.structs.replace(request, adapter="")
        untouched = run_requests(plain, [of_base]).decided()[request.request_id]
        if request.adapter:
            changed += alone != untouched
        else:
            assert alone == untouched
    assert changed > 3


@each_set
@each_dtype
@some
@given(
    rows=st.integers(1, 70),
    rank=st.integers(1, 256),
    ins=st.sampled_from((1, 33, 34, 63)),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_low_rank_parts_are_near_float64_and_rows_are_independent(
    isa: str, dtype: torch.dtype, rows: int, rank: int, ins: int, seed: int, data: st.DataObject
) -> None:
    width, first = 45, data.draw(st.integers(0, 20))
    outs = slice(first, first + data.draw(st.integers(1, 25)))
    down = randn(rank, ins, dtype=dtype, seed=seed, scale=ins**-0.5)
    up = randn(outs.stop - outs.start, rank, dtype=dtype, seed=seed + 1, scale=rank**-0.5)
    kernels = CpuKernels(machine(isa, 2), str(dtype).partition(".")[2])
    adapter = kernels.pack_adapter({"layers.0.o_proj": (LowRankPart(down, up, outs),)})
    x, base = randn(rows, ins, dtype=dtype, seed=seed + 2), randn(rows, width, dtype=dtype, seed=seed + 3)
    begin = data.draw(st.integers(0, rows - 1))
    end = data.draw(st.integers(begin, rows))
    got = base.clone()
    kernels.add_low_rank("layers.0.o_proj", x, got, [Segment(begin, end, adapter)])
    for row in range(rows):
        alone = base[row : row + 1].clone()
        if begin <= row < end:
            kernels.add_low_rank("layers.0.o_proj", x[row : row + 1], alone, [Segment(0, 1, adapter)])
        assert same_bits(got[row : row + 1], alone)
    exact = base.double()
    exact[begin:end, outs] += x[begin:end].double() @ down.double().T @ up.double().T
    assert_near(got, exact, 4e-5 if dtype == torch.float32 else 0.08, dtype)
    kernels.add_low_rank("layers.0.down_proj", x, got, [Segment(begin, end, adapter)])  # not in the adapter


def test_wrong_parts_are_refused() -> None:
    module = native_module(torch.float32)
    m = machine(SETS[0])
    adapter = PackedAdapter(m, module, {"layers.1.o_proj": (LowRankPart(randn(4, 8), randn(6, 4), slice(0, 6)),)})
    part = adapter.parts["layers.1.o_proj"].native
    with pytest.raises(ValueError, match="at most 256; got 258 and 258"):
        PackedAdapter(m, module, {"layers.0.o_proj": (LowRankPart(randn(257, 8), randn(6, 257), slice(0, 6)),)})
    with pytest.raises(ValueError, match=r"8 inputs and 6 outputs do not fit x \[3, 9\]"):
        module.add_low_rank(m, randn(3, 9), randn(3, 6), [(0, 3, part)])
    with pytest.raises(ValueError, match=r"do not fit .* out \[3, 5\]"):
        module.add_low_rank(m, randn(3, 8), randn(3, 5), [(0, 3, part)])
    with pytest.raises(ValueError, match=r"within \[0, 3\]; got \[2, 4\]"):
        module.add_low_rank(m, randn(3, 8), randn(3, 6), [(2, 4, part)])
