"""Which family of decoder layers a head has, and what is refused by name because it changes the arithmetic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from specserve.api import ModelError
from specserve.models.families import ARCHITECTURES, BUILT_IN
from specserve_eagle.checkpoints.detect import architectures
from specserve_eagle.latent.config import ARCHITECTURES as LATENT
from specserve_eagle.latent.config import FAMILY as LATENT_FAMILY

if TYPE_CHECKING:
    from specserve.api.files import RawJson
    from specserve.api.models import ModelConfig
    from specserve_eagle.checkpoints.layout import HeadKind

HEAD_NAME = re.compile(r"(?:Eagle3?|Peagle)?(Llama|Mistral|Qwen2|Qwen3)ForCausalLM(?:Eagle3?|NextN)?")
OF_OTHERS = {"Ernie4_5_MoeForCausalLM": "llama"} | dict.fromkeys(LATENT, LATENT_FAMILY)
"""The layers of heads of targets that are no family of the core's."""
FAMILIES = tuple(family.name for family in BUILT_IN)
SERVED = frozenset(
    (
        *("float32 norms", "attention gate", "mixers"),
        *("experts", "experts by sigmoids", "routers in float32", "shared expert"),
    )
)
"""What a head's layer may have that a Llama's has not, by the names of `ModelConfig.beyond_llama`. Mixers are those of
the target's other layers: a head's layer has attention. Experts are those of MTP heads alone: see `refuse_experts`."""
EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
GROUPS = ("n_group", "topk_group")
UNSUPPORTED = {
    "kv_lora_rank": "multi-head latent attention",
    "mtp_use_dedicated_embeddings": "embeddings of the MTP block's own",
    "layernorms": "HASS's additional norms",
    "add_para_norm": "HASS's additional norms",
}
"""Options of config.json that must be absent, false or 0."""
OF_EAGLE3 = {
    "norm_before_fc": "a norm before fc",
    "fc_norm": "a norm of each hidden state before fc",
    "norm_output": "a norm of the hidden state that is fed back",
    "parallel_drafting": "all draft tokens in one pass",
}
"""The same for heads of other kinds."""
INSTEAD = "Draft with n-gram, with a stand-alone model, or with a head without it."
UNSUPPORTED_TENSORS = {".kv_a_proj_with_mqa.": "multi-head latent attention"}


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
        if name in OF_OTHERS:
            return OF_OTHERS[name]
        if name in ARCHITECTURES:
            return ARCHITECTURES[name].name
    raise ModelError(
        f"{where}: a head of {given[0]} layers is not supported. Supported: dense layers of {', '.join(FAMILIES)}."
    )


def options_of_eagle3(raw: RawJson, where: str) -> RawJson:
    """Those of `OF_EAGLE3` that are true. ModelError for other values, and for norms in both places."""
    found = {key: options[key] for options in option_groups(raw) for key in OF_EAGLE3 if options.get(key) is not None}
    for key, value in found.items():
        if not isinstance(value, bool):
            raise ModelError(f"{where}: {key} must be true or false; got {value!r}. Correct the file.")
    if found.get("fc_norm") and found.get("norm_before_fc"):
        raise ModelError(
            f"{where}: fc_norm and norm_before_fc are both true: a head has one of them. Correct the file."
        )
    return {key: value for key, value in found.items() if value}


def refuse_unsupported(raw: RawJson, kind: HeadKind, names: frozenset[str], where: str) -> None:
    """ModelError for an option that this plugin does not implement: to ignore it would cost acceptance, silently."""
    nested, refused = raw.get("eagle_config"), UNSUPPORTED if kind == "eagle3" else UNSUPPORTED | OF_EAGLE3
    for options in option_groups(raw):
        for key, meaning in refused.items():
            if options.get(key):
                raise ModelError(f"{where}: {key} = {options[key]!r} ({meaning}) is not supported. {INSTEAD}")
    if isinstance(nested, dict) and nested.get("use_aux_hidden_state") is False:
        raise ModelError(f"{where}: use_aux_hidden_state = false (EAGLE-3 over one hidden state) is not supported.")
    for part, meaning in UNSUPPORTED_TENSORS.items():
        if found := sorted(name for name in names if part in name):
            raise ModelError(f"{where}: tensor {found[0]} belongs to {meaning}, which is not supported. {INSTEAD}")


def refuse_experts(raw: RawJson, layer: ModelConfig, names: frozenset[str], where: str) -> None:
    """The same for a mixture of experts in a head that is no MTP head, or whose family has none."""
    given = [f"{key} = {options[key]!r}" for options in option_groups(raw) for key in EXPERTS if options.get(key)]
    found = [f"tensor {name}" for name in sorted(names) if ".experts." in name]
    if layer.experts is not None:
        found.append(f"a layer of family {layer.family}")
    if signs := given + found:
        raise ModelError(
            f"{where}: {signs[0]} (a mixture of experts) is not supported in this draft head. Experts are computed in "
            "MTP heads of families that have them; draft with n-gram, or with a stand-alone model."
        )


def refuse_groups(raw: RawJson, where: str) -> None:
    """The same for experts of which a router chooses groups first. raw: of an MTP head with experts."""
    for key in GROUPS:
        if raw.get(key) not in (None, 1):
            raise ModelError(
                f"{where}: {key} = {raw[key]!r} (experts in groups) is not supported in an MTP block; 1 is. Draft with "
                "n-gram, or with a stand-alone model."
            )


def refuse_arithmetic(raw: RawJson, layer: ModelConfig, where: str) -> None:
    """The same for what the layer's family computes and a head's layer does not."""
    beyond = sorted(layer.beyond_llama - SERVED)
    if layer.attention_gate == "head":
        beyond.append("attention gates of whole heads")
    if layer.experts is not None and layer.experts.router_bias:
        beyond.append("biases of routers")
    if beyond:
        raise ModelError(f"{where}: a head of {layer.family} layers is not supported: {', '.join(beyond)}.")
    if layer.attention_gate is None and any(options.get("attn_output_gate") for options in option_groups(raw)):
        raise ModelError(
            f"{where}: attn_output_gate = true (gated attention outputs) is not supported for {layer.family} layers."
        )


def option_groups(raw: RawJson) -> list[RawJson]:
    found = (raw, raw.get("transformer_layer_config"), raw.get("eagle_config"))
    return [options for options in found if isinstance(options, dict)]
