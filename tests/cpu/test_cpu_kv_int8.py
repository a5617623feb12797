"""An engine with a KV cache of 8 bits: what it computes, its size, and that no draft and no neighbour changes a bit."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
import torch
from native_cases import SETS, WHOLE_SETS
from test_cpu_int8_engine import BESIDE, check_plugins_beside, noisy

from covering import covering
from specserve.errors import ConfigError
from specserve_workbench.testing.engines import accepted, assert_lossless, make_engine, run
from specserve_workbench.testing.requests import toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor


def options(isa: str = SETS[0], *names: str, weights: str = "auto", **more: Any) -> dict[str, Any]:
    cpu = {"kv": "int8", "instruction_set": isa, "weights": weights}
    return {"plugins": ("cpu", *names), "plugin_options": {"cpu": cpu, **more.pop("tables", {})}, **more}


def rounded(x: Tensor) -> Tensor:
    """x: [..., head_dim], each head to the nearest of 255 multiples of its largest number / 127."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round() * scale


@pytest.fixture
def rounding_cache() -> Iterator[None]:
    """Has transformers round keys and values on their way to its cache."""
    from transformers.cache_utils import DynamicLayer

    update = DynamicLayer.update

    def rounding(self: Any, key: Tensor, value: Tensor, *more: Any, **named: Any) -> Any:
        return update(self, rounded(key), rounded(value), *more, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DynamicLayer, "update", rounding)
        yield


@pytest.mark.usefixtures("rounding_cache")
@pytest.mark.parametrize("block_size", [16, 8])
def test_logits_are_those_of_transformers_with_rounded_keys_and_values(tmp_path: Path, block_size: int) -> None:
    from transformers import AutoModelForCausalLM

    path = write_checkpoint(tmp_path / "model", architecture="qwen2", dtype="float32")
    oracle = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    prompt = tuple(range(7, 47))
    request = toy_request("a", prompt, max_tokens=1, prompt_logprobs=0)
    got = run(path, [request], **options(dtype="float32", block_size=block_size)).outputs["a"].prompt_logprobs
    exact = run(path, [request], plugins=("cpu",), dtype="float32").outputs["a"].prompt_logprobs
    with torch.no_grad():
        expected = oracle(torch.tensor([prompt])).logits[0].log_softmax(-1)
    errors = [abs(entry.logprob - expected[i, prompt[i + 1]].item()) for i, entry in enumerate(got)]
    # a number half way between two integers may be rounded to either, and moves the tokens behind it
    assert median(errors) < 1e-5
    assert max(errors) < 2e-3
    assert median(abs(a.logprob - b.logprob) for a, b in zip(got, exact, strict=True)) > 1e-3


@covering(("isa", "dtype"), ("block_size", "dtype"), isa=WHOLE_SETS, dtype=["float32", "bfloat16"], block_size=[16, 8])
def test_chains_and_trees_are_lossless(toy_model: Path, isa: str, dtype: str, block_size: int) -> None:
    served = assert_lossless(toy_model, varied_requests(8), noisy, **options(isa, dtype=dtype, block_size=block_size))
    right, drafted = accepted(served)
    assert 0.2 * drafted < right < drafted


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("more", [
    {"threads": 2, "block_size": 64},
    {"threads": 3, "max_num_batched_tokens": 24},
    {"block_size": 1, "max_num_seqs": 2},
], ids=str)  # fmt: skip
def test_batches_threads_and_chunks_change_no_bit(toy_model: Path, dtype: str, more: dict[str, Any]) -> None:
    requests = varied_requests(12, seed=1)
    plain = run(toy_model, requests, **options(dtype=dtype))
    assert plain.decided() == run(toy_model, requests, **(options(dtype=dtype) | more)).decided()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_preempted_requests_keep_their_bits(toy_model: Path, dtype: str) -> None:
    requests = varied_requests(12, seed=1)
    tight = run(toy_model, requests, **options(dtype=dtype, prefix_cache=False, kv_memory="92K"))
    assert tight.metrics.num_preemptions > 0
    assert tight.decided() == run(toy_model, requests, **options(dtype=dtype)).decided()


@covering(weights=["auto", "int8"], beside=BESIDE)
def test_plugins_beside_change_nothing(toy_model: Path, weights: str, beside: str) -> None:
    cpu = {"kv": "int8", "weights": weights, "instruction_set": SETS[0]}
    check_plugins_beside(toy_model, cpu, beside, prefill="cpu_paged")


def test_the_same_memory_holds_nearly_twice_as_many_tokens(toy_model: Path) -> None:
    sizes = {}
    for kv in ("auto", "int8"):
        tables = {"cpu": {"kv": kv}}
        made = make_engine(toy_model, plugins=("cpu",), plugin_options=tables, kv_memory="1M", dtype="bfloat16")
        sizes[kv] = made.description["kv_cache_tokens"]
        head_bytes = {"auto": 2 * 32, "int8": 32 + 4}[kv]
        cache = made.engine.parts.cache.data
        assert cache[0, 0, 0, 0].numel() * cache.itemsize == head_bytes
    assert sizes["int8"] / sizes["auto"] == pytest.approx(64 / 36, rel=0.02)


def test_attention_and_its_arithmetic_have_a_name_of_their_own(toy_model: Path) -> None:
    made = make_engine(toy_model, **options())
    assert made.description["attention"] == "cpu_paged (cpu; KV cache in int8)"
    assert set(made.engine.runner.attention.arithmetic) == {"cpu_paged-int8"}


@pytest.mark.parametrize(("more", "message"), [
    ({"attention": "sdpa"}, r"cpu.kv=int8 is obeyed by attention cpu_paged alone; got attention sdpa\. Leave"),
    (
        {"names": ("hybrid_attn",), "tables": {"hybrid_attn": {"prefill": "sdpa", "decode": "sdpa"}}},
        r"cpu.kv=int8 is obeyed by attention cpu_paged alone; got attention hybrid\(prefill=sdpa",
    ),
    (
        {"names": ("hybrid_attn",), "tables": {"hybrid_attn": {"prefill": "sdpa", "decode": "cpu_paged"}}},
        r"KV layouts: \(none that its parts share\)",
    ),
    ({"dtype": "float16"}, r"cpu.kv=int8 is obeyed by .* alone; got attention sdpa, and cpu_paged cannot serve: dtype"),
], ids=str)  # fmt: skip
def test_another_backend_is_refused_by_name(toy_model: Path, more: dict[str, Any], message: str) -> None:
    names = more.pop("names", ())
    with pytest.raises(ConfigError, match=message):
        make_engine(toy_model, **options(SETS[0], *names, **more))


def test_an_unknown_kind_is_refused_with_the_known_ones(toy_model: Path) -> None:
    with pytest.raises(ConfigError, match=r"cpu.kv: must be one of 'auto', 'int8'.*fp8"):
        make_engine(toy_model, plugins=("cpu",), plugin_options={"cpu": {"kv": "fp8"}})
