"""Reads the numbers of a draft head, whatever format its config.json has.

Owns the differences between the formats' keys. The decoder layer's own numbers are read by the core, so a head has the
same rules for sizes, rotation and dtypes as a model. Knows nothing about shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.api import ModelError
from specserve.api.files import convert, read_json
from specserve.models.families import BUILT_IN
from specserve.models.read_config import parse_config
from specserve.models.text_part import flat
from specserve_eagle.checkpoints.against_target import ANOTHER_TARGET, check_target
from specserve_eagle.checkpoints.detect import error_of_assistant, kind_of
from specserve_eagle.checkpoints.family import (
    family_of,
    options_of_eagle3,
    refuse_arithmetic,
    refuse_experts,
    refuse_groups,
    refuse_unsupported,
)
from specserve_eagle.checkpoints.head_config import HeadConfig
from specserve_eagle.checkpoints.hidden_layers import hidden_layers
from specserve_eagle.checkpoints.layout import layout_of
from specserve_eagle.checkpoints.masks import is_parallel, masks_of
from specserve_eagle.checkpoints.stored import open_stored
from specserve_eagle.latent.config import as_plain_layer, has_latent_attention, latent_config

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.api.files import RawJson
    from specserve.api.models import ModelConfig
    from specserve_eagle.checkpoints.layout import HeadKind, Layout
    from specserve_eagle.checkpoints.target_sizes import TargetSizes

OUTER_KEYS = ("dtype", "torch_dtype", "quantization_config")
"""Keys that the speculators format keeps outside of the layer's own config."""


def read_head_config(path: Path, target: TargetSizes) -> HeadConfig:
    """The configuration of the head in directory `path`, checked against its target. Raises ModelError."""
    where = str(path / "config.json")
    raw = read_json(path / "config.json")
    kind = kind_of(path)
    if kind == "block":
        raise ModelError(f"{path} is a block head, which proposes all its tokens in one pass.")
    if kind == "assistant":
        raise error_of_assistant(path)
    if kind == "standalone":
        raise ModelError(f"{path} is a whole model, not a head: {where} has no draft head beside its layers.")
    if kind == "mtp":
        raw = flat(raw, BUILT_IN, where)  # within a target that also reads images
    names = frozenset(open_stored(path, raw.get("quantization_config")).tensors)
    layout = layout_of(names, kind)
    if layout is None:
        raise ModelError(
            f"{path}: {where} describes an MTP head, but no tensor is eh_proj, mtp.fc, mtp_layers.0.* or "
            "mtp_linear_proj.0."
        )
    latent = latent_config(raw, where) if kind == "mtp" and has_latent_attention(raw) else None
    if latent is not None:
        raw = as_plain_layer(raw, latent)
    refuse_unsupported(raw, kind, names if latent is None else frozenset(), where)
    layer = _layer(raw, kind, where)
    if kind != "mtp" or layer.experts is None:
        own = frozenset(name for name in names if kind != "mtp" or name.startswith(layout.first_layer))
        refuse_experts(raw, layer, own, where)
    else:
        refuse_groups(raw, where)
    refuse_arithmetic(raw, layer, where)
    if kind == "mtp":
        _check_mtp(raw, layer, target, where)
    if layer.experts is not None:
        experts = msgspec.structs.replace(layer.experts, layers=(True,)) if layout.has_experts(names) else None
        layer = msgspec.structs.replace(layer, experts=experts)
    config = _head_config(raw, layer, layout, target, where)
    config = msgspec.structs.replace(config, fc_bias=_fc_bias(raw, names, layout), latent=latent)
    if kind == "eagle3" and is_parallel(raw, names, layout):
        config = msgspec.structs.replace(config, masks=masks_of(raw, config.vocab_size, where))
    check_target(config, raw, names, layout, target, where)
    return config


def _layer(raw: RawJson, kind: HeadKind, where: str) -> ModelConfig:
    """The decoder layer's numbers, read as those of a plain model of the same family."""
    inner = raw.get("transformer_layer_config")
    if inner is None and raw.get("model_type") == "eagle" and isinstance(raw.get("model"), dict):
        inner = raw["model"]  # vLLM's wrapper; keys outside have priority
        raw = inner | {key: value for key, value in raw.items() if key not in ("architectures", "model_type")}
        inner = None
    family = family_of(raw, where)
    merged = raw if inner is None else inner | {key: raw[key] for key in OUTER_KEYS if key in raw}
    # EAGLE has no windows; where a target leaves the key out, its family decides for its MTP layer too.
    window = {} if kind == "mtp" or "sliding_window" in merged else {"sliding_window": None}
    model = parse_config(merged | window | {"architectures": [], "model_type": family}, {}, where=where)
    if any(window is not None for window in model.sliding_windows):
        raise ModelError(f"{where}: a head whose attention has a sliding window is not supported.")
    own_bias = merged.get("qkv_bias")  # the original EAGLE's key
    return model if own_bias is None else msgspec.structs.replace(model, qkv_bias=bool(own_bias))


def _head_config(raw: RawJson, layer: ModelConfig, layout: Layout, target: TargetSizes, where: str) -> HeadConfig:
    eagle3 = layout.kind == "eagle3"
    fields = {name: getattr(layer, name) for name in HeadConfig.__struct_fields__ if hasattr(layer, name)}
    fields |= {
        "kind": layout.kind,
        "num_layers": 1 if layout.kind == "mtp" else layer.num_layers,
        "draft_vocab_size": raw.get("draft_vocab_size") or layer.vocab_size if eagle3 else layer.vocab_size,
        "target_hidden_size": raw.get("target_hidden_size") or layer.hidden_size,
        "hidden_layers": hidden_layers(raw, target.num_layers, where) if eagle3 else (target.num_layers,),
        "norm_before_residual": eagle3 and _norm_before_residual(raw, where),
        "fc_bias": False,
        "embedding_first": layout.embedding_first,
        "reads": layout.reads,
        "rotation": layout.rotation,
    }
    if eagle3:
        given = options_of_eagle3(raw, where)
        fields["norm_output"] = "norm_output" in given
        fields["target_norms"] = "each" if "fc_norm" in given else "all" if "norm_before_fc" in given else None
    fields |= {name: msgspec.to_builtins(fields[name]) for name in ("rope", "experts")}
    config = convert(
        fields, HeadConfig, lambda wrong: ModelError(f"{where}: {wrong} Correct the file or download it again.")
    )
    if not 1 <= config.draft_vocab_size <= config.vocab_size:
        raise ModelError(
            f"{where}: draft_vocab_size must be between 1 and vocab_size ({config.vocab_size}); "
            f"got {config.draft_vocab_size}."
        )
    return config


def _check_mtp(raw: RawJson, layer: ModelConfig, target: TargetSizes, where: str) -> None:
    count = raw.get("num_nextn_predict_layers", raw.get("mtp_num_hidden_layers", 1))
    if count != 1:
        raise ModelError(
            f"{where}: an MTP head of {count!r} layers is not supported. Supported: num_nextn_predict_layers 1, whose "
            "layer is applied again for every further token."
        )
    if layer.num_layers not in (1, target.num_layers):  # 1 where the head is exported as a model of its own
        raise ModelError(
            f"{where}: the MTP head was trained for a target of {layer.num_layers} layers; this one has "
            f"{target.num_layers}. {ANOTHER_TARGET}"
        )


def _norm_before_residual(raw: RawJson, where: str) -> bool:
    given = raw.get("norm_before_residual", None if "speculators_model_type" in raw else False)
    if not isinstance(given, bool):  # engines assume different values where the speculators format leaves it out
        raise ModelError(f"{where}: norm_before_residual must be true or false; got {given!r}. Correct the file.")
    return given


def _fc_bias(raw: RawJson, names: frozenset[str], layout: Layout) -> bool:
    """A bias that the file has or that config.json promises; original config.json files seldom mention it."""
    promised = raw.get("fusion_bias") is True or raw.get("bias") is True
    return promised or any(name in names for name in layout.candidates("fc.bias"))
