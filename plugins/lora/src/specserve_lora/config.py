"""adapter_config.json: PEFT's configuration of an adapter.

Owns its fields, their types and which are unsupported; unknown fields are logged and ignored. Knows nothing of the
model or of tensors. Every error is an AdapterError that names the file.
"""

from __future__ import annotations

import logging
import math
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from specserve.api.files import convert, explain_json_error
from specserve_lora.errors import AdapterError

logger = logging.getLogger(__name__)
UNSUPPORTED = {
    "use_dora": "DoRA rescales the weight itself, which no addition can do",
    "use_qalora": "QALoRA pools the inputs first",
    "bias": "trained biases belong to no adapter here; train with bias='none'",
    "lora_bias": "biases of lora_B are not supported",
    "modules_to_save": "whole retrained modules are not supported; train without, or merge the adapter into the model",
    "trainable_token_indices": "retrained embeddings are not supported",
    "fan_in_fan_out": "it is for Conv1D layers, which no served model has",
    "layer_replication": "it makes another model of more layers",
    "alora_invocation_tokens": "an activated LoRA begins in the middle of a prompt",
    "arrow_config": "it routes among adapters",
    "kasa_config": "KaSA truncates the weight itself",
    "monteclora_config": "it samples its weights",
    "use_bdlora": "block-diagonal adapters are not supported",
}
"""Fields that change what the adapter computes, and why each is not supported."""
NO_EFFECT: tuple[Any, ...] = (None, False, "", "none", [], {})
MODIFIES_BASE_WEIGHTS = ("pissa", "corda", "olora", "loftq", "lora_ga")
"""Initialisations that move a part of the base weight into the adapter, which fits only the residual weight."""
IGNORED = {
    *("task_type", "auto_mapping", "base_model_name_or_path", "revision", "inference_mode"),
    *("runtime_config", "lora_dropout", "megatron_config", "megatron_core", "loftq_config", "eva_config"),
    *("corda_config", "lora_ga_config", "velora_config", "qalora_group_size", "ensure_weight_tying", "uno_config"),
}
"""Fields about training, about drafts or about other fields."""

MAX_PATTERN_LEN = 4096
Text = Annotated[str, Meta(max_length=MAX_PATTERN_LEN)]
Rank = Annotated[int, Meta(ge=1)]


class AdapterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that decide which modules the adapter changes, at which rank and scaling; in PEFT's names."""

    peft_type: str
    r: Rank
    lora_alpha: float
    target_modules: Text | list[Text] | None = None
    """None: no modules, which needs `target_parameters`."""
    target_parameters: list[Text] | None = None
    exclude_modules: Text | list[Text] | None = None
    rank_pattern: dict[Text, Rank] | None = None
    alpha_pattern: dict[Text, float] | None = None
    use_rslora: bool | None = None
    layers_to_transform: int | list[int] | None = None
    layers_pattern: Text | list[Text] | None = None
    init_lora_weights: bool | str | None = None
    peft_version: Text | None = None


def parse_config(data: bytes, source: str) -> AdapterConfig:
    """`source` names the file in error messages."""
    try:
        raw = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.ValidationError:
        raise AdapterError(f"{source} must hold a JSON object, as PEFT writes it.", param="lora_path") from None
    except msgspec.DecodeError as error:
        reason = explain_json_error(data, error)
        raise AdapterError(f"{source} is not valid JSON: {reason}.", param="lora_path") from None
    except UnicodeDecodeError:
        raise AdapterError(f"{source} is not valid JSON: it is not UTF-8.", param="lora_path") from None
    except RecursionError:
        raise AdapterError(f"{source} nests too deeply.", param="lora_path") from None
    kind = raw.get("peft_type")
    if str(kind).upper() != "LORA":
        raise AdapterError(f"{source}: peft_type must be LORA; got {kind!r}.", param="lora_path")
    refuse_unsupported(raw, source)
    config = convert(raw, AdapterConfig, lambda wrong: AdapterError(f"{source}: {wrong}", param="lora_path"))
    check_values(config, source)
    unknown = sorted(raw.keys() - UNSUPPORTED.keys() - IGNORED - set(AdapterConfig.__struct_fields__))
    if unknown:
        logger.warning("%s has fields that are not known here and were ignored: %s", source, ", ".join(unknown)[:500])
    return config


def refuse_unsupported(raw: dict[str, Any], source: str) -> None:
    for field, reason in UNSUPPORTED.items():
        if (value := raw.get(field)) not in NO_EFFECT:
            raise AdapterError(
                f"{source}: {field} = {str(value)[:100]} cannot be served: {reason}.", param="lora_path", code=field
            )
    if str(raw.get("init_lora_weights")).lower().startswith(MODIFIES_BASE_WEIGHTS):
        raise AdapterError(
            f"{source}: init_lora_weights = {str(raw['init_lora_weights'])[:100]} cannot be served: this "
            "initialisation changes the model's own weights. Convert the adapter with save_pretrained(..., "
            "path_initial_model_for_weight_conversion=...).",
            param="lora_path",
            code="init_lora_weights",
        )


def check_values(config: AdapterConfig, source: str) -> None:
    for alpha in (config.lora_alpha, *(config.alpha_pattern or {}).values()):
        if not math.isfinite(alpha):
            raise AdapterError(f"{source}: lora_alpha must be finite; got {alpha}.", param="lora_path")
    if config.target_modules is None and not config.target_parameters:
        raise AdapterError(
            f"{source}: target_modules: must be a string of at most {MAX_PATTERN_LEN} characters or a list of strings, "
            "where target_parameters is empty; got null.",
            param="lora_path",
        )
    selects_layers = config.layers_to_transform not in (None, []) or config.layers_pattern not in (None, "", [])
    if selects_layers and isinstance(config.target_modules, str):
        raise AdapterError(
            f"{source}: layers_to_transform and layers_pattern need target_modules to be a list; got the string "
            f"{config.target_modules[:100]!r}.",
            param="lora_path",
        )
