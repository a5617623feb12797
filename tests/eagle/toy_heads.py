"""Small random heads in every public format, written by names that are spelled out here once more.

A head is a dict of canonical names, as the reference computes with it; a format is how those are named in a file.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file

from specserve.models.read_config import parse_config
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from specserve.models.config import ModelConfig

    Tensors = dict[str, Tensor]

H, V, D, LAYERS = 32, 64, 24, 8
HEADS, KV_HEADS, HEAD_DIM, INNER = 4, 2, 8, 48
SIZES: dict[str, Any] = {
    "hidden_size": H,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": V,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
TARGET: dict[str, Any] = SIZES | {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS}
LAYER_NAMES = {
    "input_norm": "input_layernorm",
    "hidden_norm": "hidden_norm",
    "post_attention_norm": "post_attention_layernorm",
} | {f"{part}{kind}": f"self_attn.{part}{kind}" for part in "qkvo" for kind in ("_proj", "_norm")}
LAYER_NAMES |= {f"{part}_proj": f"mlp.{part}_proj" for part in ("gate", "up", "down")}


class Format(NamedTuple):
    """What config.json says beside the sizes, and how tensors are named; `{part}` is a layer's part."""

    kind: str
    config: dict[str, Any]
    layer: str
    names: Mapping[str, str] = MappingProxyType({})
    inside: bool = False
    """The tensors are added to a whole target checkpoint."""


def speculators(kind: str, **options: Any) -> dict[str, Any]:
    layer = SIZES | {"model_type": "llama", "num_hidden_layers": 1}
    verifier = {"name_or_path": "org/target", "architectures": ["LlamaForCausalLM"]}
    return {
        "architectures": ["Speculator"],
        "speculators_model_type": kind,
        "speculators_config": {"algorithm": kind, "verifier": verifier},
        "transformer_layer_config": layer,
    } | options


ONE: dict[str, Any] = SIZES | {"num_hidden_layers": 1, "model_type": "llama"}
EAGLE3 = ONE | {"draft_vocab_size": D}
DEEPSEEK = {
    "fc": f"model.layers.{LAYERS}.eh_proj",
    "enorm": f"model.layers.{LAYERS}.enorm",
    "hnorm": f"model.layers.{LAYERS}.hnorm",
    "norm": f"model.layers.{LAYERS}.shared_head.norm",
    "embed_tokens": f"model.layers.{LAYERS}.embed_tokens",
    "lm_head": f"model.layers.{LAYERS}.shared_head.head",
}
NEXTN = {name: theirs.replace(f".{LAYERS}.", ".0.") for name, theirs in DEEPSEEK.items()}
QWEN = {"fc": "mtp.fc", "enorm": "mtp.pre_fc_norm_embedding", "hnorm": "mtp.pre_fc_norm_hidden", "norm": "mtp.norm"}
MIMO = {
    "fc": "mtp_layers.0.input_proj",
    "enorm": "mtp_layers.0.token_layernorm",
    "hnorm": "mtp_layers.0.hidden_layernorm",
    "norm": "mtp_layers.0.final_layernorm",
}
FUSION = {"fc": "fusion_fc"}
FORMATS = {
    "specforge": Format("eagle3", EAGLE3 | {"architectures": ["LlamaForCausalLMEagle3"]}, "midlayer.{part}"),
    "vllm-eagle3": Format("eagle3", EAGLE3 | {"architectures": ["Eagle3LlamaForCausalLM"]}, "model.layers.0.{part}"),
    "speculators-eagle3": Format(
        "eagle3",
        speculators("eagle3", draft_vocab_size=D, norm_before_residual=True),
        "layers.0.{part}",
        {f"fc_norm.{i}": f"fc_norms.{i}" for i in range(3)},
    ),
    "eagle": Format("eagle", ONE | {"architectures": ["LlamaForCausalLM"]}, "layers.0.{part}"),
    "vllm-eagle": Format("eagle", ONE | {"architectures": ["EagleLlamaForCausalLM"]}, "layers.0.{part}"),
    "wrapped-eagle": Format(
        "eagle", {"architectures": ["EAGLEModel"], "model_type": "eagle", "model": ONE}, "layers.0.{part}"
    ),
    "speculators-eagle": Format("eagle", speculators("eagle", fusion_bias=True), "transformer.{part}", FUSION),
    "deepseek-inside": Format("mtp", TARGET, f"model.layers.{LAYERS}.{{part}}", DEEPSEEK, inside=True),
    "deepseek-beside": Format("mtp", TARGET, f"model.layers.{LAYERS}.{{part}}", DEEPSEEK),
    "nextn": Format("mtp", ONE | {"architectures": ["LlamaForCausalLMNextN"]}, "model.layers.0.{part}", NEXTN),
    "qwen-inside": Format("mtp", TARGET, "mtp.layers.0.{part}", QWEN, inside=True),
    "qwen-beside": Format("mtp", TARGET, "mtp.layers.0.{part}", QWEN),
    "speculators-mtp": Format("mtp", speculators("mtp"), "mtp_layers.0.{part}", MIMO),
    "mimo": Format("mtp", TARGET, "model.mtp_layers.0.{part}", {k: f"model.{v}" for k, v in MIMO.items()}, inside=True),
}
EVERY_KIND = ("specforge", "eagle", "deepseek-beside")


def toy_target(**changes: Any) -> ModelConfig:
    return parse_config(TARGET | changes, {}, where="target")


def random_head(kind: str, *, seed: int = 0, own_tables: bool = False) -> Tensors:
    """Canonical tensors of a head; `own_tables`: with an embedding and an output head of its own."""
    generator = torch.Generator().manual_seed(seed)

    def weight(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator).div(columns**0.5)

    def norm(size: int = H) -> Tensor:
        return 1 + 0.2 * torch.randn(size, generator=generator)

    inputs = 2 * H if kind == "eagle3" else H
    layer = {
        "post_attention_norm": norm(),
        "q_proj": weight(HEADS * HEAD_DIM, inputs),
        "k_proj": weight(KV_HEADS * HEAD_DIM, inputs),
        "v_proj": weight(KV_HEADS * HEAD_DIM, inputs),
        "o_proj": weight(H, HEADS * HEAD_DIM),
        "gate_proj": weight(INNER, H),
        "up_proj": weight(INNER, H),
        "down_proj": weight(H, INNER),
    }
    layer |= {} if kind == "eagle" else {"input_norm": norm()}
    layer |= {"hidden_norm": norm()} if kind == "eagle3" else {}
    head = {f"layers.0.{part}": tensor for part, tensor in layer.items()}
    head |= {"fc": weight(H, 3 * H if kind == "eagle3" else 2 * H)}
    head |= {"fc.bias": 0.1 * torch.randn(H, generator=generator)} if kind == "eagle" else {"norm": norm()}
    head |= {"enorm": norm(), "hnorm": norm()} if kind == "mtp" else {}
    head |= {"embed_tokens": weight(V, H), "lm_head": weight(V, H)} if own_tables else {}
    return head | (reduced_vocabulary(weight(D, H)) if kind == "eagle3" else {})


def with_second_layer(head: Tensors) -> Tensors:
    """A plain decoder layer behind the first."""
    other = random_head("mtp", seed=7)
    return head | {name.replace(".0.", ".1."): t for name, t in other.items() if name.startswith("layers.0.")}


def with_target_norms(head: Tensors, *sizes: int) -> Tensors:
    """A norm of each of three hidden states of the target, or one of this size of all of them."""
    names = ["input_norm"] if sizes else [f"fc_norm.{i}" for i in range(3)]
    generator = torch.Generator().manual_seed(11)
    return head | {name: 1 + 0.5 * torch.randn(*(sizes or (H,)), generator=generator) for name in names}


def reduced_vocabulary(lm_head: Tensor) -> Tensors:
    """Every second target token from the fourth on."""
    ids = 3 + 2 * torch.arange(D)
    mask = torch.zeros(V, dtype=torch.bool)
    mask[ids] = True
    return {"lm_head": lm_head, "d2t": ids - torch.arange(D), "t2d": mask}


def file_name(canonical: str, form: Format) -> str:
    if canonical in ("d2t", "t2d"):
        return canonical
    module = canonical.removesuffix(".bias")
    suffix = ".weight" if module == canonical else ".bias"
    if module.startswith("layers.0."):
        return form.layer.format(part=LAYER_NAMES[module.removeprefix("layers.0.")]) + suffix
    if module.startswith("layers.1."):
        return "layers.1." + LAYER_NAMES[module.removeprefix("layers.1.")] + suffix
    return form.names.get(module, module) + suffix


def write_head(path: Path, form: str, head: Tensors | None = None, **changes: Any) -> Path:
    """The head in directory `path`; `changes` are keys of config.json."""
    given = FORMATS[form]
    head = random_head(given.kind) if head is None else head
    tensors = {file_name(name, given): tensor.contiguous() for name, tensor in head.items()}
    if given.inside:
        tensors |= load_file(
            write_checkpoint(path, architecture="llama", **SIZES, num_hidden_layers=LAYERS) / SAFETENSORS
        )
    path.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path / SAFETENSORS)
    (path / "config.json").write_text(json.dumps(given.config | changes))
    return path


SAFETENSORS = "model.safetensors"


def change_tensors(path: Path, **changes: Any) -> Path:
    """Replace tensors of a written head by file name; None removes one. Dots are double underscores."""
    tensors = load_file(path / SAFETENSORS)
    for name, tensor in changes.items():
        tensors.pop(name.replace("__", "."), None)
        if tensor is not None:
            tensors[name.replace("__", ".")] = tensor
    save_file(tensors, path / SAFETENSORS)
    return path
