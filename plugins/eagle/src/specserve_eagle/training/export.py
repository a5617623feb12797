"""Draft models in the public formats that other engines load.

- EAGLE-3: LlamaForCausalLMEagle3. Engines take the embedding from the target where embed_tokens is absent, and layers
  2, L/2 and L-3 where no layers are named; ids that name them are counted differently by different engines.
- EAGLE: the original layout. The bias of `fc` is zero: some engines have one, others leave it out.
- MTP: the layer is numbered on from the target's layers, as in DeepSeek-V3's checkpoints.
- Draft adapters: PEFT's, see `uno_export`.
- DFlash, DSpark: modules have the public names; see `block_export`.
- Stand-alone: a plain Llama with the target's tokenizer.
"""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save

from specserve_eagle.card import CARD_FILE, MAX_RATES
from specserve_eagle.training.block_export import block_config
from specserve_eagle.training.block_heads import BlockHeadModule
from specserve_eagle.training.folder import write_atomically
from specserve_eagle.training.head_rotation import head_rope
from specserve_eagle.training.heads import Eagle1Head, Eagle3Head, MtpHead
from specserve_eagle.training.standalone import DraftLlama
from specserve_eagle.training.uno_export import export_adapter
from specserve_eagle.training.uno_module import DraftAdapterModule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from specserve.api.files import RawJson
    from specserve.api.models import ModelConfig
    from specserve_eagle.training.modules import HeadShape
    from specserve_eagle.training.target_files import TargetFiles

    LayeredModule = Eagle3Head | Eagle1Head | MtpHead | BlockHeadModule | DraftLlama
    Module = LayeredModule | DraftAdapterModule

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
)
COPIED_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id")
BUFFERS = ("draft_ids", "mask_token")
"""Tensors of a module that become tables or numbers of config.json."""
ROPE_KEYS = ("partial_rotary_factor", "original_max_position_embeddings")


def export(module: Module, target: TargetFiles, folder: Path) -> None:
    """Write model.safetensors and config.json, each atomically; the tokenizer too beside a stand-alone model."""
    if isinstance(module, DraftAdapterModule):
        export_adapter(module, folder)
        return
    tensors = {name: tensor.contiguous().cpu() for name, tensor in public_tensors(module, target.config).items()}
    config = public_config(module, target.config, target.raw)
    content = save(tensors, metadata={"format": "pt"})
    write_atomically(folder / "model.safetensors", lambda file: file.write_bytes(content))
    write_atomically(folder / "config.json", lambda file: file.write_text(json.dumps(config, indent=2) + "\n"))
    if isinstance(module, DraftLlama):
        for name in TOKENIZER_FILES:
            if (target.path / name).is_file():
                shutil.copyfile(target.path / name, folder / name)


def write_card(folder: Path, rates: Sequence[float]) -> None:
    """`rates`: by draft position. Three digits of each."""
    rates = [math.floor(1000 * rate) / 1000 for rate in rates[:MAX_RATES]]
    write_atomically(folder / CARD_FILE, lambda file: file.write_text(json.dumps({"rates": rates}) + "\n"))


def public_tensors(module: LayeredModule, target: ModelConfig) -> dict[str, Tensor]:
    """Weights in bfloat16 under their public names, with the tables of a draft vocabulary."""
    state = {name: tensor.to(torch.bfloat16) for name, tensor in module.state_dict().items() if name not in BUFFERS}
    match module:
        case Eagle3Head():
            return state | vocabulary_tables(module.draft_ids, target.vocab_size)
        case BlockHeadModule():
            ids = module.draft_ids
            return state if ids is None else state | vocabulary_tables(ids, target.vocab_size)
        case Eagle1Head():
            named = {name.replace("layer.", "layers.0.", 1) if name.startswith("layer.") else name: tensor
                     for name, tensor in state.items()}  # fmt: skip
            return named | {"fc.bias": torch.zeros(target.hidden_size, dtype=torch.bfloat16)}
        case MtpHead():
            prefix = f"model.layers.{target.num_layers}."
            final = {"norm.weight": "shared_head.norm.weight"}
            return {prefix + final.get(name, name.removeprefix("layer.")): tensor for name, tensor in state.items()}
        case DraftLlama():
            return {name if name.startswith("lm_head.") else f"model.{name}": tensor for name, tensor in state.items()}


def vocabulary_tables(draft_ids: Tensor, vocab_size: int) -> dict[str, Tensor]:
    """d2t: what is added to a draft id to give the target's; t2d: whether a target's id is in the draft vocabulary."""
    ids = draft_ids.cpu()
    mask = torch.zeros(vocab_size, dtype=torch.bool)
    mask[ids] = True
    return {"d2t": ids - torch.arange(len(ids)), "t2d": mask}


def public_config(module: LayeredModule, target: ModelConfig, raw: RawJson) -> RawJson:
    """`raw`: the target's config.json, as a text model has it."""
    shape = module.shape.layer if isinstance(module, BlockHeadModule) else module.shape
    config = layer_config(shape, target, raw) | rope_config(target, raw)
    match module:
        case Eagle3Head():
            own = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(module.draft_ids)}
            own |= {"target_hidden_size": target.hidden_size, "norm_before_residual": False}
        case Eagle1Head():
            own = {"architectures": ["LlamaForCausalLM"], "bias": True}
        case BlockHeadModule():
            own = block_config(module, target)
        case MtpHead():
            own = {"architectures": ["LlamaForCausalLMNextN"], "num_hidden_layers": target.num_layers}
            own |= {"num_nextn_predict_layers": 1}
        case DraftLlama():
            own = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": len(module.layers)}
            own |= {"tie_word_embeddings": module.tied}
    return config | own


def layer_config(shape: HeadShape, target: ModelConfig, raw: RawJson) -> RawJson:
    sizes = {
        "model_type": "llama",
        "vocab_size": target.vocab_size,
        "max_position_embeddings": target.max_position_embeddings,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.norm_eps,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    return sizes | {key: raw[key] for key in COPIED_KEYS if key in raw}


def rope_config(target: ModelConfig, raw: RawJson) -> RawJson:
    """The head's rotation under the older keys, which all engines read."""
    rope = head_rope(target)
    if rope.rope_type == "default":
        return {"rope_theta": rope.rope_theta, "rope_scaling": None}
    scaling = dict(raw.get("rope_parameters") or raw.get("rope_scaling") or {})
    scaling.pop("rope_theta", None)
    kept = {key: raw[key] for key in ROPE_KEYS if key in raw}
    return {"rope_theta": rope.rope_theta, "rope_scaling": scaling} | kept
