"""Which family of decoder layers a head has, and what is refused by name because it changes the arithmetic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from specserve.api import ModelError
from specserve.models.families import BUILT_IN
from specserve_eagle.checkpoints.detect import architectures

if TYPE_CHECKING:
    from specserve.api.files import RawJson

HEAD_NAME = re.compile(r"(?:Eagle3?)?(Llama|Mistral|Qwen2|Qwen3)ForCausalLM(?:Eagle3?|NextN)?")
FAMILIES = tuple(family.name for family in BUILT_IN)
EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
UNSUPPORTED = {
    "kv_lora_rank": "multi-head latent attention",
    "attn_output_gate": "gated attention outputs",
    "norm_before_fc": "a norm before fc",
    "fc_norm": "a norm of each hidden state before fc",
    "norm_output": "a norm of the hidden state that is fed back",
    "layernorms": "HASS's additional norms",
    "add_para_norm": "HASS's additional norms",
    "parallel_drafting": "parallel drafting",
} | dict.fromkeys(EXPERTS, "a mixture of experts")
"""Options of config.json that must be absent, false or 0."""
UNSUPPORTED_TENSORS = {".kv_a_proj_with_mqa.": "multi-head latent attention", ".experts.": "a mixture of experts"}


def family_of(raw: RawJson, where: str) -> str:
    """One of the core's families. An architecture's name has priority over the model type."""
    layer = raw.get("transformer_layer_config")
    if layer is not None:
        if not isinstance(layer, dict):
            raise ModelError(f"{where}: transformer_layer_config must be an object; got {layer!r}.")
        given = [str(layer.get("model_type") or "llama")]
    else:
        given = [*architectures(raw), str(raw.get("model_type"))]
    for name in given:
        if match := HEAD_NAME.fullmatch(name):
            return match[1].lower()
        if name in FAMILIES:
            return name
    raise ModelError(
        f"{where}: a head of {given[0]} layers is not supported. Supported: dense layers of {', '.join(FAMILIES)}."
    )


def refuse_unsupported(raw: RawJson, names: frozenset[str], where: str) -> None:
    """ModelError for an option that this plugin does not implement: to ignore it would cost acceptance, silently."""
    layer, nested = raw.get("transformer_layer_config"), raw.get("eagle_config")
    for options in (raw, layer, nested):
        for key, meaning in UNSUPPORTED.items():
            if isinstance(options, dict) and options.get(key):
                raise ModelError(f"{where}: {key} = {options[key]!r} ({meaning}) is not supported.")
    if isinstance(nested, dict) and nested.get("use_aux_hidden_state") is False:
        raise ModelError(f"{where}: use_aux_hidden_state = false (EAGLE-3 over one hidden state) is not supported.")
    for part, meaning in UNSUPPORTED_TENSORS.items():
        if found := sorted(name for name in names if part in name):
            raise ModelError(f"{where}: tensor {found[0]} belongs to {meaning}, which is not supported.")
