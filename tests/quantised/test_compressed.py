"""Checkpoints with 8-bit weights: read as what they stand for, by kernels that keep the integers too, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file

from compressed_checkpoints import DYNAMIC, config_of, packed, write_compressed
from specserve.engine.model_roles import installed_formats
from specserve.errors import ModelError
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.family import ModelFamily, StoredAs
from specserve.models.loader import ModelLoader
from specserve.models.open_weights import open_weights
from specserve.models.quantised import dense as dense_weight
from specserve.protocols.quantised import QuantisedWeight
from specserve_quantised.compressed_settings import Layout, Scheme, read_layout
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import assert_lossless, make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.models.config import ModelConfig

FORMS = [("pack-quantized", None), ("pack-quantized", 64), ("int-quantized", None), ("int-quantized", 32)]
each_form = pytest.mark.parametrize(("kind", "group_size"), FORMS)
PROMPT = tuple(range(7, 47))


def prompt_logprobs(path: Path, **options: object) -> list[float]:
    request = toy_request("a", PROMPT, max_tokens=1, prompt_logprobs=0)
    options = {"plugins": ("quantised",)} | options
    return [entry.logprob for entry in run(path, [request], **options).outputs["a"].prompt_logprobs]


@each_form
@pytest.mark.parametrize("plugins", [("quantised",), ("quantised", "cpu")], ids=["torch", "cpu"])
def test_the_model_is_that_of_the_weights_they_stand_for(
    tmp_path: Path, kind: str, group_size: int | None, plugins: tuple[str, ...]
) -> None:
    from transformers import AutoModelForCausalLM

    source = write_checkpoint(tmp_path / "source", architecture="qwen2", hidden_size=96, intermediate_size=202)
    options = {"kind": kind, "group_size": group_size, "scale_dtype": torch.bfloat16}
    path = write_compressed(source, tmp_path / "compressed", **options)
    dense = write_compressed(source, tmp_path / "dense", dense=True, **options)
    oracle = AutoModelForCausalLM.from_pretrained(dense, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logprobs = oracle(torch.tensor([PROMPT])).logits[0].log_softmax(-1)
    expected = [logprobs[i, token].item() for i, token in enumerate(PROMPT[1:])]
    assert prompt_logprobs(path, plugins=plugins) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("kind", ["int8", "int8-g64"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_cpu_kernels_keep_the_integers(tmp_path: Path, kind: str, dtype: str) -> None:
    """They compute what they compute for a model that they quantise themselves, to the last bit."""
    group_size = {"int8": None, "int8-g64": 64}[kind]
    source = write_checkpoint(tmp_path / "source", dtype=dtype)
    path = write_compressed(source, tmp_path / "compressed", group_size=group_size, leave=())
    options = {"plugins": ("quantised", "cpu"), "dtype": dtype}
    theirs = run(path, varied_requests(8), **options)
    ours = run(source, varied_requests(8), plugin_options={"cpu": {"weights": kind}}, **options)
    assert theirs.decided() == ours.decided()


def test_the_cpu_kernels_round_activations_where_the_checkpoint_says_so(toy_model: Path, tmp_path: Path) -> None:
    """They compute what the options give for the unquantised model, to the last bit."""
    compressed = {"kind": "int-quantized", "leave": ()}
    path = write_compressed(toy_model, tmp_path / "w8a8", activations=DYNAMIC, **compressed)
    theirs = run(path, varied_requests(8), plugins=("quantised", "cpu"))
    cpu = {"weights": "int8", "activations": "int8"}
    ours = run(toy_model, varied_requests(8), plugins=("quantised", "cpu"), plugin_options={"cpu": cpu})
    assert theirs.decided() == ours.decided()
    weights_only = write_compressed(toy_model, tmp_path / "w8a16", **compressed)
    in_dtype = run(weights_only, varied_requests(8), plugins=("quantised", "cpu"))
    assert theirs.decided() != in_dtype.decided()
    # other kernels multiply in the model's dtype
    assert prompt_logprobs(path) == prompt_logprobs(weights_only)


@pytest.mark.parametrize("plugins", [("quantised",), ("quantised", "cpu")], ids=["torch", "cpu"])
def test_drafts_are_lossless_with_rounded_activations(
    toy_model: Path, tmp_path: Path, plugins: tuple[str, ...]
) -> None:
    path = write_compressed(toy_model, tmp_path / "compressed", kind="int-quantized", activations=DYNAMIC)
    check_drafts(path, plugins)


@each_form
@pytest.mark.parametrize("plugins", [("quantised",), ("quantised", "cpu")], ids=["torch", "cpu"])
def test_drafts_are_lossless(
    toy_model: Path, tmp_path: Path, kind: str, group_size: int | None, plugins: tuple[str, ...]
) -> None:
    check_drafts(write_compressed(toy_model, tmp_path / "compressed", kind=kind, group_size=group_size), plugins)


def check_drafts(path: Path, plugins: tuple[str, ...]) -> None:
    served = assert_lossless(
        path,
        varied_requests(8),
        lambda outputs: NoisyDrafter(outputs, p=0.7, max_width=12, vocab_size=TOY_VOCAB),
        plugins=plugins,
        dtype="bfloat16",
    )
    assert served.metrics.num_accepted_tokens > 50


def test_maps_that_are_not_quantised_may_stand_among_those_that_are(toy_model: Path, tmp_path: Path) -> None:
    leave = ("k_proj", "layers.1.mlp.up_proj", "lm_head")
    path = write_compressed(toy_model, tmp_path / "compressed", leave=leave)
    dense = write_compressed(toy_model, tmp_path / "dense", leave=leave, dense=True)
    assert prompt_logprobs(path) == pytest.approx(prompt_logprobs(dense), abs=1e-5)
    projections = ModelLoader(formats=installed_formats()).load(path, kernels=TorchKernels()).projections
    quantised = {name for name, p in projections.items() if isinstance(p.stored(), QuantisedWeight)}
    assert quantised == {
        "layers.0.o_proj", "layers.0.gate_up_proj", "layers.0.down_proj", "layers.1.o_proj", "layers.1.down_proj"
    }  # fmt: skip


class Fused(ModelFamily):
    name = "fused"
    architectures = ("FusedForCausalLM",)

    def stored_as(self, config: ModelConfig) -> dict[str, StoredAs]:
        inner, found = config.intermediate_size, {}
        for mlp in (f"model.layers.{layer}.mlp" for layer in range(config.num_layers)):
            found[f"{mlp}.gate_proj"] = StoredAs(f"{mlp}.gate_up_proj", 0, inner)
            found[f"{mlp}.up_proj"] = StoredAs(f"{mlp}.gate_up_proj", inner, inner)
        return found


@each_form
def test_a_matrix_that_a_family_stores_for_two_may_be_quantised(
    tmp_path: Path, kind: str, group_size: int | None
) -> None:
    source = write_checkpoint(tmp_path / "source", architecture=Fused())
    loaded = {}
    for dense in (False, True):
        path = write_compressed(source, tmp_path / str(dense), kind=kind, group_size=group_size, dense=dense)
        loaded[dense] = (
            ModelLoader(families=(Fused(),), formats=installed_formats()).load(path, kernels=TorchKernels()).projections
        )
    for name, projection in loaded[False].items():
        weight = projection.stored()
        assert isinstance(weight, QuantisedWeight) == (name != "lm_head")
        assert torch.equal(dense_weight(weight), dense_weight(loaded[True][name].stored()))


@pytest.mark.parametrize("shape", [(), (0,), (0, 128), (639, 128)], ids=str)
@pytest.mark.parametrize("last", [None, 320], ids=["the rest", "counted"])
def test_a_matrix_for_two_of_another_shape_is_refused(tmp_path: Path, shape: tuple[int, ...], last: int | None) -> None:
    class Open(Fused):
        def stored_as(self, config: ModelConfig) -> dict[str, StoredAs]:
            parts = super().stored_as(config)
            return {name: part._replace(num_rows=last) if part.first_row else part for name, part in parts.items()}

    path = write_checkpoint(tmp_path, architecture=Fused())
    tensors = load_file(path / "model.safetensors") | {"model.layers.1.mlp.gate_up_proj.weight": torch.zeros(shape)}
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(ModelError, match=r"gate_up_proj.weight has \d+ rows, but|(gate|up)_proj.weight has shape"):
        ModelLoader(families=(Open(),)).load(path, kernels=TorchKernels())


def test_integers_are_packed_with_the_first_in_the_lowest_byte() -> None:
    words = packed(torch.tensor([[-128, -127, 0, 127, 5]]))
    assert [word & 0xFFFFFFFF for word in words[0].tolist()] == [0xFF800100, 0x00000085]


def test_a_weight_is_its_integers_times_their_scales() -> None:
    integers = torch.tensor([[1, -2, 3], [4, 5, -128]], dtype=torch.int8)
    weight = QuantisedWeight(integers, torch.tensor([[0.5, 2.0], [1.0, 0.25]]), 2, torch.float32)
    assert weight.dense().tolist() == [[0.5, -1.0, 6.0], [4.0, 5.0, -32.0]]


def test_progress_ends_at_the_size_of_the_file(toy_model: Path, tmp_path: Path) -> None:
    path, seen = write_compressed(toy_model, tmp_path / "compressed"), []
    loader = ModelLoader(formats=installed_formats(), on_progress=lambda done, total: seen.append((done, total)))
    loader.load(path, kernels=TorchKernels())
    total = sum(tensor.nbytes for tensor in load_file(path / "model.safetensors").values())
    assert seen[-1] == (total, total)
    assert all(done < total for done, total in seen[:-1])


BASE = config_of("pack-quantized", 64)
GROUP = BASE["config_groups"]["group_0"]
ROUNDED_GROUP = config_of("int-quantized", None, DYNAMIC)["config_groups"]["group_0"]


@pytest.mark.parametrize(("config", "message"), [
    ({"quant_method": "hqq"}, r"of quant_method 'hqq'; allowed: compressed-tensors \(.*W8A16.* or gptq .* or awq"),
    (config_of("pack-quantized", None, num_bits=3), "weights of 3 bits, type 'int'"),
    (config_of("int-quantized", None, num_bits=4), "weights of 4 bits, type 'int'"),
    (config_of("float-quantized", None, type="float"), "format 'float-quantized'"),
    (config_of("int-quantized", None, type="float"), "weights of 8 bits, type 'float'"),
    (config_of("int-quantized", None, symmetric=False), "weights that are not symmetric"),
    (config_of("pack-quantized", None, strategy="tensor"), "strategy 'tensor'"),
    (config_of("pack-quantized", None, strategy="group"), "strategy 'group' with groups of None"),
    (config_of("pack-quantized", None, num_bits="eight"), r'\.num_bits: must be an integer; got "eight"\. Correct'),
    (BASE | {"config_groups": {"g": GROUP | {"output_activations": DYNAMIC}}}, "quantised outputs"),
    (config_of("int-quantized", None, DYNAMIC | {"num_bits": 4}), "activations of 4 bits, type 'int'"),
    (config_of("int-quantized", None, DYNAMIC | {"type": "float"}), "activations of 8 bits, type 'float'"),
    (config_of("int-quantized", None, DYNAMIC | {"symmetric": False}), "activations that are not symmetric"),
    (config_of("int-quantized", None, {"num_bits": 8}), r"activations with dynamic = False and strategy None"),
    (config_of("int-quantized", None, DYNAMIC | {"dynamic": False}), "dynamic = False and strategy 'token'"),
    (config_of("int-quantized", None, DYNAMIC | {"dynamic": "local"}), "dynamic = 'local' and strategy 'token'"),
    (config_of("int-quantized", None, DYNAMIC | {"strategy": "tensor"}), "dynamic = True and strategy 'tensor'"),
    (config_of("pack-quantized", None, DYNAMIC, num_bits=4), "quantised activations with weights of 4 bits"),
    (config_of("pack-quantized", None, DYNAMIC, symmetric=False),
     "quantised activations with asymmetric weights of 8 bits"),
    (config_of("int-quantized", 64, DYNAMIC), "quantised activations with weights of strategy 'group'"),
    (BASE | {"config_groups": {"a": GROUP, "b": ROUNDED_GROUP}},
     "some config_groups quantise activations and some do not"),
    (BASE | {"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme {'num_bits': 8}"),
    (BASE | {"sparsity_config": {"format": "2:4"}}, "sparsity_config {'format': '2:4'}"),
    (BASE | {"transform_config": {"config_groups": {"R1": {}}}}, "transform_config {'config_groups'"),
    (BASE | {"config_groups": {}}, "no config_groups"),
    ({"quant_method": "compressed-tensors"}, "quantization_config: config_groups: is missing; it must"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_what_is_not_read_is_refused_by_name(toy_model: Path, config: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=rf"config\.json: .*{message}"):
        open_weights(toy_model, config, installed_formats())


@pytest.mark.parametrize(("change", "message"), [
    ({"weight_scale": torch.ones(128, 3)}, r"weight_scale has shape \[128, 3\]; with 320 inputs .* allows 5 scales"),
    ({"weight_scale": torch.ones(64, 5)}, r"weight_scale has shape \[64, 5\], but its weight says \[128, 5\]"),
    ({"weight_packed": torch.zeros(128, 79, dtype=torch.int32)}, r"weight_packed has shape \[128, 79\]"),
    ({"weight_packed": torch.zeros(128, 80, dtype=torch.int64)}, "weight_packed has type I64; allowed: I32"),
    ({"weight_packed": None}, "weight_packed is missing"),
    ({"weight_shape": None}, "weight_shape is missing"),
    ({"weight_shape": torch.ones(3).long()}, r"weight_shape has shape \[3\], but its format says \[2\]"),
    ({"weight_shape": torch.tensor([128, 0])}, r"weight_shape says that a matrix has shape \[128, 0\]"),
    ({"weight_shape": torch.tensor([128, 319])}, r"down_proj.weight has shape \[128, 319\], but config.json says"),
    ({"weight": torch.ones(128, 320)}, "down_proj.weight is there twice, packed and not"),
    ({"weight_zero_point": torch.zeros(128, 5)}, "weight_zero_point changes what weights mean"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_tensors_that_do_not_fit_are_refused_by_name(
    toy_model: Path, tmp_path: Path, change: dict[str, torch.Tensor | None], message: str
) -> None:
    path = write_compressed(toy_model, tmp_path / "compressed", group_size=64)
    tensors = load_file(path / "model.safetensors")
    for name, tensor in change.items():
        full = f"model.layers.1.mlp.down_proj.{name}"
        tensors.pop(full, None)
        if tensor is not None:
            tensors[full] = tensor
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(ModelError, match=message):
        ModelLoader(formats=installed_formats()).load(path, kernels=TorchKernels())


def test_a_sparsity_config_that_says_dense_changes_nothing() -> None:
    plain, dense = (
        read_layout(BASE | more, "config.json") for more in ({}, {"sparsity_config": {"format": "dense", "ignore": []}})
    )
    assert plain == dense == Layout("pack-quantized", (Scheme(8, 64, True),), "auto")


def test_an_engine_serves_them_with_its_default_plugins(toy_model: Path, tmp_path: Path) -> None:
    engine = make_engine(write_compressed(toy_model, tmp_path / "c", group_size=32), default_plugins=True).engine
    assert all(tokens for tokens in run_requests(engine, varied_requests(4)).tokens().values())
