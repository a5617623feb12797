"""Which kind of draft model a directory holds, from config.json and the names of its tensors.

Names decide where config.json does not: the original EAGLE checkpoints call themselves plain Llamas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from specserve.api import ModelError
from specserve.api.files import read_json
from specserve.models.directory_kinds import refuse_other_kinds
from specserve.models.families import ARCHITECTURES
from specserve_eagle.checkpoints.block_names import is_block_head
from specserve_eagle.checkpoints.layout import HeadKind, layout_of
from specserve_eagle.checkpoints.stored import open_stored

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.api.files import RawJson

DraftKind: TypeAlias = HeadKind | Literal["block", "assistant", "standalone"]
MTP_COUNTS = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_layers")
"""Keys of config.json that promise MTP layers."""
SPECULATORS: dict[str, DraftKind] = {
    "eagle": "eagle",
    "eagle3": "eagle3",
    "peagle": "eagle3",
    "mtp": "mtp",
    "dflash": "block",
    "dspark": "block",
}
ASSISTANTS = ("Gemma4AssistantForCausalLM", "gemma4_assistant")
BLOCK_KINDS = ("dflash", "dspark")
"""In the names of architectures."""


def kind_of(path: Path) -> DraftKind:
    """The kind of the draft model in directory `path`. Raises ModelError where it is none."""
    if not (path / "config.json").exists():
        refuse_other_kinds(path, str(path))
    raw = read_json(path / "config.json")
    if is_assistant(raw, path):
        return "assistant"
    names = frozenset(open_stored(path, raw.get("quantization_config")).tensors)
    if (kind := _declared(raw, path) or _by_names(names)) is not None:
        return kind
    if "model.embed_tokens.weight" in names and any(name in ARCHITECTURES for name in architectures(raw)):
        return "standalone"
    raise ModelError(
        f"{path} holds no draft model that is known: config.json names {', '.join(architectures(raw)) or 'nothing'}, "
        f"and the first of {len(names)} tensors is {min(names, default='missing')}. Supported: EAGLE-1/2 (tensor "
        "fc.weight), EAGLE-3 and P-EAGLE (LlamaForCausalLMEagle3, Eagle3LlamaForCausalLM), MTP (eh_proj, mtp.* or "
        "mtp_layers.*), DFlash and DSpark (DFlashDraftModel), assistants of Gemma 4 (Gemma4AssistantForCausalLM), "
        f"the speculators format ({', '.join(SPECULATORS)}), and as stand-alone models {', '.join(ARCHITECTURES)}."
        f"{why_no_mtp(raw, names)}"
    )


def is_assistant(raw: RawJson, path: Path) -> bool:
    """Whether it is one for Gemma 4. ModelError for those of other models."""
    named = [*architectures(raw), str(raw.get("model_type"))]
    found = next((name for name in named if "assistant" in name.lower()), None)
    if found is not None and not {*named} & {*ASSISTANTS}:
        raise ModelError(
            f"{path} is an assistant ({found}), whose layers read the keys and values of a target that is not served. "
            f"Served are {' and '.join(ASSISTANTS)}, the assistants of Gemma 4. Draft with n-gram, or with a "
            "stand-alone model."
        )
    return found is not None


def refuse_assistant(path: Path) -> None:
    """For what reads other draft models. ModelError where this is an assistant."""
    file = path / "config.json"
    if file.exists() and is_assistant(read_json(file), path):
        raise error_of_assistant(path)


def error_of_assistant(path: Path) -> ModelError:
    return ModelError(
        f"{path} is an assistant, which reads the target's keys and values as well: it is served, and neither trained "
        "nor measured here."
    )


def architectures(raw: RawJson) -> list[str]:
    """The names in `architectures`, or the model type where there are none."""
    names = raw.get("architectures") or [raw.get("model_type")]
    return [str(name) for name in names if name]


def _declared(raw: RawJson, path: Path) -> DraftKind | None:
    declared = raw.get("speculators_model_type")
    if declared is not None:
        if not isinstance(declared, str) or declared not in SPECULATORS:
            raise ModelError(
                f"{path / 'config.json'}: speculators_model_type {declared!r} is not supported. "
                f"Supported: {', '.join(SPECULATORS)}."
            )
        return SPECULATORS[declared]
    for name in architectures(raw):
        if any(kind in name.lower() for kind in BLOCK_KINDS):
            return "block"
        if any(kind in name.lower() for kind in ("eagle3", "peagle")):
            return "eagle3"
        if "eagle" in name.lower():
            return "eagle"
    return None


def _by_names(names: frozenset[str]) -> DraftKind | None:
    if layout_of(names, "mtp") is not None:
        return "mtp"
    if is_block_head(names):
        return "block"
    plain = {name.removeprefix("model.") for name in names}
    if {"midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight"} & plain:
        return "eagle3"
    return "eagle" if "fc.weight" in plain else None


def why_no_mtp(raw: RawJson, names: frozenset[str]) -> str:
    """Of a target in which no MTP block was found: a sentence for an error, or nothing where there is no sign of
    one."""
    if found := min((name for name in names if _is_of_block(name)), default=None):
        return (
            f" Tensor {found} is of an MTP block whose layout is not served. Served are mtp.fc with mtp.layers.0 "
            "(Qwen3.5), model.layers.L.eh_proj (DeepSeek, GLM), mtp_layers.0 (MiMo, speculators) and mtp_block.0 with "
            "mtp_linear_proj.0 (Ernie 4.5)."
        )
    outer, inner = raw, raw.get("text_config")
    settings = outer | inner if isinstance(inner, dict) else outer
    if promised := next((key for key in MTP_COUNTS if settings.get(key)), None):
        return (
            f" config.json promises an MTP block ({promised} = {settings[promised]!r}), and no tensor is of one: "
            "transformers, for one, leaves it out when it saves a model. Use the original checkpoint."
        )
    return ""


def _is_of_block(name: str) -> bool:
    return any(part.startswith(("mtp", "nextn", "eh_proj")) for part in name.split("."))
