"""A draft adapter in PEFT's layout, with what it was trained for in `uno_config`, and as a trainable module again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from specserve.api import ModelError
from specserve.api.files import read_json
from specserve_eagle.block.config import MAX_BLOCK
from specserve_eagle.training.folder import write_atomically
from specserve_eagle.training.uno_module import DraftAdapterModule, LowRank, UnoShape
from specserve_eagle.training.uno_options import LEAST_END

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from specserve_eagle.training.target import Target

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

OTHER_ARITHMETIC = ("use_rslora", "rank_pattern", "alpha_pattern", "use_dora")
AS_TRAINED = "Evaluation knows adapters for this target as `specserve-eagle train --head uno` makes them."
"""Fields of PEFT that change the scale of an adapter, its ranks or what it computes."""


class StoredUno(msgspec.Struct, frozen=True):
    """`uno_config`."""

    mask_token_id: Annotated[int, Meta(ge=LEAST_END)]
    block_size: Annotated[int, Meta(ge=1, le=MAX_BLOCK)]


class StoredAdapter(msgspec.Struct, frozen=True):
    """What is read of adapter_config.json."""

    r: Annotated[int, Meta(ge=1)]
    lora_alpha: float
    uno_config: StoredUno
    use_rslora: bool | None = None
    rank_pattern: dict[str, object] | None = None
    alpha_pattern: dict[str, object] | None = None
    use_dora: bool | None = None


def export_adapter(module: DraftAdapterModule, folder: Path) -> None:
    """Write both files of the adapter, each atomically."""
    shape = module.shape
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": shape.rank,
        "lora_alpha": shape.rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({part.path.rpartition(".")[2] for part in module.parts}),
        "uno_config": {"mask_token_id": shape.mask_token, "block_size": shape.block_size},
    }
    content = save({name: tensor.contiguous() for name, tensor in public_pairs(module).items()}, {"format": "pt"})
    write_atomically(folder / ADAPTER_WEIGHTS, lambda file: file.write_bytes(content))
    write_atomically(folder / ADAPTER_CONFIG, lambda file: file.write_text(json.dumps(config, indent=2) + "\n"))


def public_pairs(module: DraftAdapterModule) -> dict[str, Tensor]:
    """In the target's dtype, in which they are computed."""
    found: dict[str, Tensor] = {}
    for part, pair in zip(module.parts, module.pairs, strict=True):
        assert isinstance(pair, LowRank)
        for letter, tensor in (("A", pair.down), ("B", pair.up)):
            found[f"base_model.model.{part.path}.lora_{letter}.weight"] = tensor.detach().to(module.dtype).cpu()
    return found


def reopen_adapter(path: Path, target: Target) -> DraftAdapterModule:
    """Raises ModelError: adapters that were trained otherwise are not read here."""
    source = path / ADAPTER_CONFIG
    try:
        stored = msgspec.convert(read_json(source), StoredAdapter)
        tensors = load_file(path / ADAPTER_WEIGHTS)
    except (msgspec.ValidationError, SafetensorError, OSError) as error:
        raise ModelError(f"{source.parent}: no draft adapter can be read: {error}. {AS_TRAINED}") from None
    if other := [name for name in OTHER_ARITHMETIC if getattr(stored, name)]:
        raise ModelError(
            f"{source}: evaluation does not know {other[0]}; got {getattr(stored, other[0])}. {AS_TRAINED}"
        )
    end, block_size = stored.uno_config.mask_token_id, stored.uno_config.block_size
    if end > target.config.vocab_size:
        raise ModelError(
            f"{source}: uno_config: mask_token_id must be at most {target.config.vocab_size}, the tokens of the "
            f"target; got {end}. Is it an adapter of another target?"
        )
    module = DraftAdapterModule(target, UnoShape(block_size, end, stored.r))
    expected = {name: tensor.shape for name, tensor in public_pairs(module).items()}
    wrong = [*(expected.keys() ^ tensors.keys())]
    wrong += [name for name in expected.keys() & tensors.keys() if tensors[name].shape != expected[name]]
    if wrong:
        raise ModelError(f"{path / ADAPTER_WEIGHTS}: tensor {min(wrong)} is not as expected. {AS_TRAINED}")
    state: dict[str, Tensor] = {}
    for number, part in enumerate(module.parts):
        down, up = (tensors[f"base_model.model.{part.path}.lora_{letter}.weight"] for letter in "AB")
        state |= {f"pairs.{number}.down": down, f"pairs.{number}.up": up.float() * (stored.lora_alpha / stored.r)}
    module.load_state_dict(state)
    return module
