"""The contents of config.json and generation_config.json, under one set of names.

Owns the supported architectures and their unwritten rules (Qwen2's biases, which layers have a window); accepts
unknown keys; knows nothing about tensors. Every error is a ModelError that names the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from specserve.errors import ModelError
from specserve.model_files import read_json, read_optional_json
from specserve.models.compressed import Compression, read_compression
from specserve.models.config_fields import FULL, check_fields, unknown_fields
from specserve.models.directory_kinds import refuse_other_kinds
from specserve.models.rope_config import RopeConfig, rope_fields
from specserve.wrong_values import find_wrong_value

if TYPE_CHECKING:
    from specserve.model_files import RawJson
    from specserve.wrong_values import WrongValue

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
ABSENT_WINDOW = 4096
"""What transformers assumes where the key is absent; an explicit null is no window."""
ABSENT_KV_HEADS = {"mistral": 8, "qwen2": 32, "qwen3": 32}
"""What transformers assumes where the key is absent; an explicit null is one for each query head."""
THEIRS = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "norm_eps": "rms_norm_eps",
    "qkv_bias": "attention_bias",
    "o_bias": "attention_bias",
    "tied": "tie_word_embeddings",
    "rope": "rope_parameters",
}
"""The keys of config.json that have another name here."""
FLOAT_DTYPES = ("float32", "bfloat16", "float16")


class GenerationDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling values that the model's authors recommend; None where they recommend none."""

    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder's numbers. `family` is one of llama, mistral, qwen2, qwen3."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    max_position_embeddings: int
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied: bool
    """The output head is the embedding; the checkpoint has no lm_head."""
    dtype: str
    """What the checkpoint says its weights are; float32 when it is silent."""
    rope: RopeConfig
    sliding_windows: tuple[int | None, ...]
    """Per layer: how many keys a query sees, itself included; None for all."""
    generation: GenerationDefaults = GenerationDefaults()
    compression: Compression | None = None
    """How the weights of linear maps are stored where they are quantised."""

    unknown_fields: tuple[str, ...] = ()
    """Of config.json, that are neither used nor known to change nothing."""

    @property
    def rotary_dim(self) -> int:
        """How many of a head's dimensions are rotated."""
        return int(self.head_dim * self.rope.partial_rotary_factor)


def read_config(path: Path) -> ModelConfig:
    """The configuration of the model in directory `path`."""
    refuse_other_kinds(path, str(path))
    file = path / "config.json"
    raw = read_json(file)
    config = parse_config(raw, read_optional_json(path / "generation_config.json"), where=str(file))
    check_fields(raw, config.family, str(file))
    return msgspec.structs.replace(config, unknown_fields=unknown_fields(raw))


def parse_config(raw: RawJson, generation: RawJson, *, where: str) -> ModelConfig:
    """Both files' contents as one ModelConfig; `where` names the file in errors."""
    family = _family(raw, where)
    _refuse_unsupported(raw, where)
    fields = _sizes(raw, family) | {
        "family": family,
        "norm_eps": raw.get("rms_norm_eps", 1e-6),
        "qkv_bias": family == "qwen2" or (family in ("llama", "qwen3") and raw.get("attention_bias", False)),
        "o_bias": family in ("llama", "qwen3") and raw.get("attention_bias", False),
        "mlp_bias": family == "llama" and raw.get("mlp_bias", False),
        "qk_norm": family == "qwen3",
        "tied": raw.get("tie_word_embeddings", False),
        "dtype": _dtype(raw, where),
        "rope": rope_fields(raw, where),
        "sliding_windows": (),
        "generation": {k: v for k, v in generation.items() if k in GenerationDefaults.__struct_fields__},
    }
    try:
        config = msgspec.convert(fields, ModelConfig)
    except msgspec.ValidationError as error:
        wrong = in_their_words(find_wrong_value(error, fields, ModelConfig), where)
        raise ModelError(f"{wrong}. Correct the file or download it again.") from None
    _check_sizes(config, where)
    quantisation = raw.get("quantization_config")
    return msgspec.structs.replace(
        config,
        sliding_windows=_sliding_windows(raw, config, where),
        compression=read_compression(quantisation, where) if quantisation else None,
    )


def in_their_words(wrong: WrongValue, where: str) -> str:
    """With the file's name and the key as the file has it."""
    first, _, rest = wrong.path.partition(".")
    if first == "generation":
        return f"{Path(where).with_name('generation_config.json')}: {rest}: {wrong.text}"
    key = ".".join(filter(None, (THEIRS.get(first, first), rest)))
    return f"{where}: {key}: {wrong.text}"


def _family(raw: RawJson, where: str) -> str:
    names = raw.get("architectures") or []
    for name in names:
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    if not names and raw.get("model_type") in ARCHITECTURES.values():
        return str(raw["model_type"])
    raise ModelError(
        f"{where}: architecture {', '.join(map(str, names)) or raw.get('model_type')!r} is not supported. "
        f"Supported: {', '.join(ARCHITECTURES)}."
    )


def _refuse_unsupported(raw: RawJson, where: str) -> None:
    """What changes the arithmetic and is not implemented is refused, never ignored."""
    if (act := raw.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise ModelError(f"{where}: hidden_act must be silu; got {act!r}.")


def _sizes(raw: RawJson, family: str) -> RawJson:
    """Sizes by the names of ModelConfig. A missing one is left out, so that the conversion names it in its error."""
    ours = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "max_position_embeddings")
    sizes = {name: raw[theirs] for name in ours if (theirs := THEIRS.get(name, name)) in raw}
    heads = raw.get("num_attention_heads")
    kv_heads = raw.get("num_key_value_heads", ABSENT_KV_HEADS.get(family))
    sizes["num_kv_heads"] = heads if kv_heads is None else kv_heads
    head_dim = raw.get("head_dim", 128 if family == "qwen3" else None)  # Qwen3's does not follow from the others
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
    if config.rotary_dim % 2 or not 0 < config.rotary_dim <= config.head_dim:
        raise ModelError(
            f"{where}: the rotated part of a head must be even and at most head_dim ({config.head_dim}); "
            f"got {config.rotary_dim}."
        )
    for name, value in (("rope_theta", config.rope.rope_theta), ("the rotary factor", config.rope.factor)):
        if value is not None and value <= 0:
            raise ModelError(f"{where}: {name} must be positive; got {value}. Correct the file.")


def _dtype(raw: RawJson, where: str) -> str:
    dtype = raw.get("dtype") or raw.get("torch_dtype") or "float32"
    dtype = str(dtype).removeprefix("torch.")
    if dtype not in FLOAT_DTYPES:
        raise ModelError(f"{where}: dtype must be one of {', '.join(FLOAT_DTYPES)}; got {dtype!r}.")
    return dtype


def _sliding_windows(raw: RawJson, config: ModelConfig, where: str) -> tuple[int | None, ...]:
    window = raw.get("sliding_window", ABSENT_WINDOW)
    if config.family == "llama" or (config.family != "mistral" and not raw.get("use_sliding_window", False)):
        window = None
    if window is None:
        return (None,) * config.num_layers
    if not isinstance(window, int) or window < 1:
        raise ModelError(f"{where}: sliding_window must be a positive number of tokens or null; got {window!r}.")
    if config.family == "mistral":
        return (window,) * config.num_layers
    kinds = raw.get("layer_types")
    if kinds is None:
        first = raw.get("max_window_layers", 28)
        kinds = ["sliding_attention" if layer >= first else "full_attention" for layer in range(config.num_layers)]
    known = {"sliding_attention", *FULL}
    if len(kinds) != config.num_layers or not known.issuperset(kinds):
        raise ModelError(
            f"{where}: layer_types must name one of {', '.join(sorted(known))} for each of the "
            f"{config.num_layers} layers; got {kinds!r}."
        )
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
