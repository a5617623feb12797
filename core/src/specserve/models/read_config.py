"""The contents of config.json and generation_config.json, under one set of names.

What families have of their own they say themselves (`specserve.models.family`). Accepts unknown keys; knows nothing
about tensors. Every error is a ModelError that names the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from specserve.errors import ModelError
from specserve.model_files import read_json, read_optional_json
from specserve.models.config import GenerationDefaults, ModelConfig
from specserve.models.config_fields import check_fields, unknown_fields
from specserve.models.directory_kinds import refuse_other_kinds
from specserve.models.families import BUILT_IN, family_named, family_of
from specserve.models.rope_config import RopeConfig, rope_fields
from specserve.models.text_part import flat
from specserve_checks.wrong_values import find_wrong_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specserve.model_files import RawJson
    from specserve.models.family import ModelFamily
    from specserve_checks.wrong_values import WrongValue

THEIRS = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "norm_eps": "rms_norm_eps",
    "qkv_bias": "attention_bias",
    "o_bias": "attention_bias",
    "tied": "tie_word_embeddings",
    "rope": "rope_parameters",
    "quantization": "quantization_config",
}
"""The keys of config.json that have another name here."""
FLOAT_DTYPES = ("float32", "bfloat16", "float16")


def read_config(path: Path, families: Sequence[ModelFamily] = BUILT_IN) -> ModelConfig:
    """The configuration of the model in directory `path`."""
    refuse_other_kinds(path, str(path))
    file = path / "config.json"
    whole = read_json(file)
    raw = flat(whole, families, str(file))
    generation = read_optional_json(path / "generation_config.json")
    config = parse_config(raw, generation, where=str(file), families=families)
    family = family_named(config.family, families)
    check_fields(raw, family, str(file))
    return msgspec.structs.replace(config, is_part=raw is not whole, unknown_fields=unknown_fields(raw, family))


def parse_config(
    raw: RawJson, generation: RawJson, *, where: str, families: Sequence[ModelFamily] = BUILT_IN
) -> ModelConfig:
    """Both files' contents as one ModelConfig; `where` names the file in errors."""
    family = family_of(raw, families, where)
    known = family.renamed(raw | {key: value for key, value in family.absent.items() if key not in raw})
    _refuse_unsupported(known, family, where)
    fields = (
        _sizes(known)
        | family.traits(known)._asdict()
        | {
            "family": family.name,
            "norm_eps": known.get("rms_norm_eps", 1e-6),
            "tied": known.get("tie_word_embeddings", False),
            "dtype": _dtype(known, where),
            "rope": rope_fields(family.main_rotation(known), where, rotates_parts=family.rotates_parts),
            "layer_ropes": (),
            "sliding_windows": (),
            "generation": {k: v for k, v in generation.items() if k in GenerationDefaults.__struct_fields__},
            "quantization": raw.get("quantization_config") or None,
            "own": {name: known.get(name) for name in family.reads},
        }
    )
    try:
        config = msgspec.convert(fields, ModelConfig)
    except msgspec.ValidationError as error:
        wrong = in_their_words(find_wrong_value(error, fields, ModelConfig), where)
        raise ModelError(f"{wrong}. Correct the file or download it again.") from None
    _check_sizes(config, where)
    count = config.num_layers
    config = msgspec.structs.replace(
        config,
        sliding_windows=family.sliding_windows(known, count, where),
        layer_attention=family.layer_attention(known, count, where),
        inner_sizes=family.inner_sizes(known, count),
        experts=family.experts(known, count),
        mixers=family.mixers(known, count, where),
        layer_ropes=tuple(_layer_ropes(family.rotations(known, count, where), family, where)),
    )
    _check_rotations(config, where)
    return config


def _layer_ropes(rotations: Sequence[RawJson | None], family: ModelFamily, where: str) -> Iterator[RopeConfig | None]:
    """Equal ones are one object."""
    read: list[RopeConfig] = []
    for raw in rotations:
        if raw is None:
            yield None
            continue
        fields = rope_fields(raw, where, rotates_parts=family.rotates_parts)
        try:
            rope = msgspec.convert(fields, RopeConfig)
        except msgspec.ValidationError as error:
            raise ModelError(f"{where}: rope_parameters: {error}. Correct the file or download it again.") from None
        if rope not in read:
            read.append(rope)
        yield read[read.index(rope)]


def in_their_words(wrong: WrongValue, where: str) -> str:
    """With the file's name and the key as the file has it."""
    first, _, rest = wrong.path.partition(".")
    if first == "generation":
        return f"{Path(where).with_name('generation_config.json')}: {rest}: {wrong.text}"
    key = ".".join(filter(None, (THEIRS.get(first, first), rest)))
    return f"{where}: {key}: {wrong.text}"


def _refuse_unsupported(raw: RawJson, family: ModelFamily, where: str) -> None:
    """What changes the arithmetic and is not implemented is refused, never ignored."""
    key = family.activation_key
    if (act := raw.get(key, family.activations[0])) not in family.activations:
        raise ModelError(f"{where}: {key} must be {family.activations[0]}; got {act!r}.")


def _sizes(raw: RawJson) -> RawJson:
    """Sizes by the names of ModelConfig. A missing one is left out, so that the conversion names it in its error."""
    ours = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "max_position_embeddings")
    sizes = {name: raw[theirs] for name in ours if (theirs := THEIRS.get(name, name)) in raw}
    heads, kv_heads = raw.get("num_attention_heads"), raw.get("num_key_value_heads")
    sizes["num_kv_heads"] = heads if kv_heads is None else kv_heads
    head_dim = raw.get("head_dim")
    if head_dim is None and isinstance(heads, int) and heads > 0 and isinstance(raw.get("hidden_size"), int):
        head_dim = raw["hidden_size"] // heads
    return sizes | {"head_dim": head_dim}


def _check_sizes(config: ModelConfig, where: str) -> None:
    sizes = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_layers",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "max_position_embeddings",
    )
    for name in sizes:
        if getattr(config, name) < 1:
            raise ModelError(f"{where}: {THEIRS.get(name, name)} must be at least 1; got {getattr(config, name)}.")
    if config.num_heads % config.num_kv_heads:
        raise ModelError(
            f"{where}: num_attention_heads ({config.num_heads}) must be a multiple of "
            f"num_key_value_heads ({config.num_kv_heads})."
        )


def _check_rotations(config: ModelConfig, where: str) -> None:
    """Each with the size of the heads that it rotates."""
    ropes = config.layer_ropes or (config.rope,) * config.num_layers
    attending = (layer for layer in range(config.num_layers) if config.mixer(layer) is None)
    pairs = {(ropes[layer], config.attention(layer).head_dim): None for layer in attending}
    if config.rope not in ropes:
        pairs[config.rope, config.head_dim] = None
    for rope, head_dim in pairs:
        if rope is not None:
            _check_rotation(rope, head_dim, where)


def _check_rotation(rope: RopeConfig, head_dim: int, where: str) -> None:
    rotated = int(head_dim * rope.partial_rotary_factor)
    in_halves = head_dim if rope.rope_type == "proportional" else rotated
    if in_halves % 2 or not 0 < rotated <= head_dim:
        raise ModelError(
            f"{where}: the rotated part of a head must be even and at most head_dim ({head_dim}); got {rotated}."
        )
    for name, value in (("rope_theta", rope.rope_theta), ("the rotary factor", rope.factor)):
        if value is not None and value <= 0:
            raise ModelError(f"{where}: {name} must be positive; got {value}. Correct the file.")


def _dtype(raw: RawJson, where: str) -> str:
    dtype = raw.get("dtype") or raw.get("torch_dtype") or "float32"
    dtype = str(dtype).removeprefix("torch.")
    if dtype not in FLOAT_DTYPES:
        raise ModelError(f"{where}: dtype must be one of {', '.join(FLOAT_DTYPES)}; got {dtype!r}.")
    return dtype
