"""An engine with weights of 8 or 4 bits: what it computes, and that drafts and neighbours change nothing in it."""

from __future__ import annotations

import json
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from native_cases import SETS
from safetensors.torch import load_file, save_file

from covering import covering
from specserve.errors import ConfigError
from specserve.types import SpeculationParams
from specserve_cpu.coded import quantise_to_four
from specserve_cpu.options import GROUP_SIZES
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import (
    accepted,
    assert_lossless,
    make_engine,
    run,
    run_requests,
    verify_everything,
)
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

KINDS = {
    "int8": {"weights": "int8"},
    "int8-g64": {"weights": "int8-g64"},
    "int8-a8": {"weights": "int8", "activations": "int8"},
    "int8-g64-a8": {"weights": "int8-g64", "activations": "int8"},
    "int4": {"weights": "int4"},
    "int4-af": {"weights": "int4", "activations": "float"},
}
"""As the kernels' name says them."""
KEPT = ("embed_tokens", "mlp.gate.weight")
"""In the names of matrices that stay as they are: the embedding and routers of experts."""
ROUND_INPUTS = ("int8-a8", "int8-g64-a8", "int4")
each_kind = pytest.mark.parametrize("kind", KINDS)


def options(kind: str, isa: str = SETS[0], **more: Any) -> dict[str, Any]:
    return {"plugins": ("cpu",), "plugin_options": {"cpu": {**KINDS[kind], "instruction_set": isa}}, **more}


def noisy(outputs: Mapping[str, Sequence[int]]) -> NoisyDrafter:
    return NoisyDrafter(outputs, p=0.7, max_width=12, vocab_size=TOY_VOCAB)


def rounded(x: Tensor, group_size: int) -> Tensor:
    """Each group of a row rounded to the nearest multiples of its largest number / 127."""
    groups = x.split(min(group_size, x.shape[-1]), -1)
    scales = [group.abs().amax(-1, keepdim=True) / 127 for group in groups]
    return torch.cat([(g / s).round() * s for g, s in zip(groups, scales, strict=True)], -1)


def in_four_bits(x: Tensor) -> Tensor:
    return quantise_to_four(x).dense()


def write_rounded(path: Path, out: Path, rounded: Callable[[Tensor], Tensor]) -> Path:
    """The checkpoint with the weights that are kept in few bits rounded, in float32; the head has a weight of its
    own."""
    out.mkdir()
    for file in path.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    tensors = {name: weight.float() for name, weight in load_file(path / "model.safetensors").items()}
    for name, weight in tensors.items():
        if weight.dim() == 2 and not any(kept in name for kept in KEPT):
            tensors[name] = rounded(weight)
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    config = json.loads((out / "config.json").read_text())
    for key in ("dtype", "torch_dtype"):
        config.pop(key, None)
    (out / "config.json").write_text(json.dumps(config | {"dtype": "float32"}))
    return out


@each_kind
def test_logits_are_those_of_transformers_on_rounded_numbers(tmp_path: Path, kind: str) -> None:
    from transformers import AutoModelForCausalLM

    weights, rounds_inputs = KINDS[kind]["weights"], kind in ROUND_INPUTS
    to_groups = partial(rounded, group_size=GROUP_SIZES[weights])
    path = write_checkpoint(tmp_path / "model", architecture="qwen2", dtype="float32")
    oracle = AutoModelForCausalLM.from_pretrained(
        write_rounded(path, tmp_path / "rounded", in_four_bits if weights == "int4" else to_groups),
        dtype=torch.float32,
        attn_implementation="eager",
    ).eval()
    if rounds_inputs:
        for module in oracle.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_pre_hook(lambda _, inputs: (to_groups(inputs[0]),))
    prompt = tuple(range(7, 47))
    request = toy_request("a", prompt, max_tokens=1, prompt_logprobs=0)
    got = run(path, [request], **options(kind, dtype="float32")).outputs["a"].prompt_logprobs
    with torch.no_grad():
        expected = oracle(torch.tensor([prompt])).logits[0].log_softmax(-1)
    errors = [abs(entry.logprob - expected[i, prompt[i + 1]].item()) for i, entry in enumerate(got)]
    assert len(errors) == len(prompt) - 1
    # an input that is almost a half may be rounded to the other side, which later tokens see
    assert max(errors) < (0.05 if rounds_inputs else 2e-4)
    assert median(errors) < 2e-5


@covering(("kind", "dtype"), ("isa", "dtype"), kind=KINDS, isa=SETS, dtype=["float32", "bfloat16"])
def test_chains_and_trees_are_lossless(toy_model: Path, kind: str, isa: str, dtype: str) -> None:
    served = assert_lossless(toy_model, varied_requests(8), noisy, **options(kind, isa, dtype=dtype))
    right, drafted = accepted(served)
    assert 0.2 * drafted < right < drafted


@covering(kind=KINDS, more=[
    {"threads": 2, "block_size": 64},
    {"threads": 3, "max_num_batched_tokens": 24},
    {"block_size": 1, "max_num_seqs": 2},
    {"plugins": ("cpu",), "attention": "sdpa"},
])  # fmt: skip
def test_batches_threads_and_chunks_change_no_bit(toy_model: Path, kind: str, more: dict[str, Any]) -> None:
    requests = varied_requests(12, seed=1)
    base = {key: value for key, value in more.items() if key == "attention"}
    plain = run(toy_model, requests, **options(kind, **base))
    other = run(toy_model, requests, **(options(kind) | more))
    assert plain.decided() == other.decided()


BESIDE = ("ngram", "eagle", "hybrid_attn", "adaptive")


def check_plugins_beside(path: Path, cpu: dict[str, Any], beside: str, prefill: str) -> None:
    """Drafts change nothing under the cpu plugin with these options. prefill: hybrid_attn's backend for prompts."""
    # a bias towards one token makes text that repeats, so that there is something to guess
    requests = [
        *varied_requests(9),
        *(toy_request(f"r{i}", (5, 6, 6), max_tokens=30, logit_bias={6: 20.0 + i}, seed=i) for i in range(9)),
    ]
    tables = {
        "eagle": {"model": str(path), "steps": 4},
        "hybrid_attn": {"prefill": prefill, "decode": "cpu_paged"},
        "adaptive": {"cost_cache": "none"},
    }
    names = {"hybrid_attn": ("hybrid_attn", "ngram"), "adaptive": ("adaptive", "ngram")}.get(beside, (beside,))
    alone: dict[str, Any] = {"plugins": ("cpu",), "plugin_options": {"cpu": cpu}, "dtype": "bfloat16"}
    of_names = {name: tables[name] for name in names if name in tables}
    config = alone | {"plugins": ("cpu", *names), "plugin_options": {"cpu": cpu, **of_names}}
    engine = make_engine(path, **config).engine
    if beside != "adaptive":
        verify_everything(engine)
    off = [msgspec.structs.replace(r, speculation=SpeculationParams(enabled=False)) for r in requests]
    without = run_requests(engine, off).decided()
    assert engine.metrics.num_accepted_tokens == 0
    assert run_requests(engine, requests).decided() == without
    assert engine.metrics.num_accepted_tokens > 50
    assert not engine.metrics.drafter_faults
    if beside != "hybrid_attn" or prefill == "cpu_paged":  # another backend has bits of its own
        assert run(path, requests, **alone).decided() == without


@covering(kind=KINDS, beside=BESIDE)
def test_plugins_beside_change_nothing(toy_model: Path, kind: str, beside: str) -> None:
    check_plugins_beside(toy_model, KINDS[kind] | {"instruction_set": SETS[0]}, beside, prefill="sdpa")


def test_the_kernels_name_says_how_weights_are_kept(toy_model: Path) -> None:
    for kind in KINDS:
        assembled = make_engine(toy_model, **options(kind))
        assert assembled.description["kernels"] == f"cpu-{SETS[0]}-{kind} (cpu)"


def test_a_weight_that_is_not_finite_stops_the_start(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path)
    tensors = load_file(path / "model.safetensors")
    tensors["model.layers.1.mlp.down_proj.weight"][3, 4] = float("nan")
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ConfigError, match=r"cpu.weights: .*got int8 and a weight of 128 x 320 .*Set .*auto"):
        make_engine(path, **options("int8"))
    make_engine(path, plugins=("cpu",))


def test_an_unknown_kind_is_refused_with_the_known_ones(toy_model: Path) -> None:
    with pytest.raises(ConfigError, match=r"cpu.weights: must be one of 'auto', 'int8', 'int8-g64', 'int4'.*int3"):
        make_engine(toy_model, plugins=("cpu",), plugin_options={"cpu": {"weights": "int3"}})


def test_activations_of_8_bits_need_weights_of_8_bits(toy_model: Path) -> None:
    with pytest.raises(ConfigError, match=r"cpu.activations: .*got int8 with cpu.weights=auto\. Set "):
        make_engine(toy_model, plugins=("cpu",), plugin_options={"cpu": {"activations": "int8"}})
    with pytest.raises(ConfigError, match=r"cpu.activations: must be one of 'auto', 'int8', 'float'.*fp8"):
        make_engine(toy_model, plugins=("cpu",), plugin_options={"cpu": {"weights": "int8", "activations": "fp8"}})
