"""Directories that hold something else than a model that generates text: named for what they are, with what to do.

A draft head, an assistant or an adapter has a place beside a model; other formats and other kinds of models have none.
Reads file names, config.json and the headers of weights; knows nothing about which architectures are supported.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.model_files import read_json, read_optional_json
from specserve.models.file_formats import DATASET, FORMATS, GGUF, KERAS, ONNX, ORIGINAL, PICKLE, RECIPES
from specserve.models.safetensors_header import INDEX, SINGLE, tensor_names
from specserve.models.text_part import PREFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from specserve.model_files import RawJson

HEAD_ARCHITECTURES = ("eagle", "nextn", "mtp", "medusa", "hydra", "speculator", "dflash", "dspark")
ASSISTANT_ENDINGS = ("AssistantForCausalLM", "_assistant")
"""How the classes and model types of draft models end that read a target's keys and values, such as Gemma 4's."""
HEAD_PARTS = ("fc.", "midlayer.", "eh_proj.", "mtp_layers.", "mtp.", "d2t", "medusa_head.")
"""How tensors begin that only heads have, without `model.` and the layer's number."""
SERVED_NORMS = frozenset(f"{prefix}norm.weight" for prefix in ("model.", *PREFIXES))
"""A checkpoint that has one of them may hold a head beside a whole model."""
EMBEDDING_FILES = ("config_sentence_transformers.json", "sentence_bert_config.json", "1_Pooling")
ENDINGS = {
    "ForSequenceClassification": "a classifier or reward model",
    "ForRewardModel": "a reward model",
    "RewardModel": "a reward model",
    "ForTokenClassification": "a classifier of tokens",
    "ForQuestionAnswering": "a model that marks answers in a text",
    "ForMaskedLM": "an encoder that fills in masked words",
    "ForPreTraining": "an encoder",
    "ForImageClassification": "an image model",
    "ForObjectDetection": "an image model",
    "ForCTC": "a speech model",
    "ForSpeechSeq2Seq": "a speech model",
    "LMHeadModel": "",
    "Model": "an encoder or embedding model, without a head that gives next tokens",
}
"""What a class of transformers is, by the end of its name; the first that fits counts."""
OTHER_SENSES = {"vision_config", "audio_config", "vision_tower", "mm_vision_tower"}
NOT_GENERATING = "It generates no text here: serve it with another program, or pass a model that generates text."


def refuse_other_kinds(path: Path, name: str, target: str = "TARGET") -> None:
    """ModelError where the directory is known to hold something else. name: how it was given; target: what a draft head
    may stand beside."""
    if found := other_kind(path, name, target):
        raise ModelError(f"model {name!r} is {found}")


def other_kind(path: Path, name: str, target: str = "TARGET") -> str:
    """A sentence after "is", and what to do; empty where it may be a model."""
    if (path / "adapter_config.json").exists() and not has_weights(path):
        return adapter(path, name)
    if not path.is_dir():
        return ""
    if not (path / "config.json").exists():
        return next(without_config(path), "")
    raw = read_json(path / "config.json")
    if kind := draft_kind(path, raw):
        return (
            f"{kind} and is no model by itself. Run: specserve serve {target} --plugin eagle --set eagle.model={name}"
            f"{', where TARGET is the model that it was trained for' if target == 'TARGET' else ''}."
        )
    if any((path / file).exists() for file in EMBEDDING_FILES):
        return f"an embedding model (it has files of sentence-transformers). {NOT_GENERATING}"
    return by_architecture(raw)


def has_weights(path: Path) -> bool:
    return (path / SINGLE).exists() or (path / INDEX).exists()


def adapter(path: Path, name: str) -> str:
    raw = read_optional_json(path / "adapter_config.json")
    base = raw.get("base_model_name_or_path") or "BASE_MODEL"
    kind = str(raw.get("peft_type") or "LORA")
    if kind != "LORA":
        return f"an adapter of kind {kind}, which is not served. Merge it into its base model {base}: {RECIPES}."
    return (
        f"a LoRA adapter and not a whole model. Run: specserve serve {base} --plugin lora --set "
        f"lora.adapters.NAME={name}; or merge it: {RECIPES}."
    )


def draft_kind(path: Path, raw: RawJson) -> str:
    """What drafts for another model; empty where it does not."""
    if is_assistant(raw):
        return "an assistant, a draft model that reads the keys and values of another model,"
    return "a draft head, which proposes tokens for another model" if is_head(path, raw) else ""


def is_assistant(raw: RawJson) -> bool:
    named = [*(raw.get("architectures") or []), raw.get("model_type")]
    return any(isinstance(each, str) and each.endswith(ASSISTANT_ENDINGS) for each in named)


def is_head(path: Path, raw: RawJson) -> bool:
    named = [str(item).lower() for item in raw.get("architectures") or [] if isinstance(item, str)]
    if "speculators_model_type" in raw or any(part in item for item in named for part in HEAD_ARCHITECTURES):
        return SERVED_NORMS.isdisjoint(names_of(path))
    names = names_of(path)
    if not SERVED_NORMS.isdisjoint(names):
        return False
    return any(part.startswith(HEAD_PARTS) for name in names for part in (plain(name), plain(name, layers=True)))


def plain(name: str, *, layers: bool = False) -> str:
    """The name without `model.`, and without `layers.N.` where there is one."""
    bare = name.removeprefix("model.")
    return bare.split(".", 2)[-1] if layers and bare.startswith("layers.") else bare


def names_of(path: Path) -> frozenset[str]:
    """The tensors' names, from the index or the one file; empty where neither can be read."""
    if (path / SINGLE).exists():
        return tensor_names(path / SINGLE)
    try:
        weight_map = json.loads((path / INDEX).read_bytes())["weight_map"]
        return frozenset(weight_map)
    except (OSError, ValueError, LookupError, TypeError):
        return frozenset()


def by_architecture(raw: RawJson) -> str:
    """By the classes that config.json names, and the parts that it describes."""
    named = [item for item in raw.get("architectures") or [] if isinstance(item, str)]
    if any(item.endswith("ForCausalLM") for item in named):
        return ""
    first = named[0] if named else str(raw.get("model_type"))
    if raw.get("is_encoder_decoder") is True:
        return f"a model of an encoder and a decoder ({first}). {NOT_GENERATING}"
    for name in named:
        for ending, what in ENDINGS.items():
            if name.endswith(ending):
                return f"{what} ({name}). {NOT_GENERATING}" if what else ""
    if raw.keys() & OTHER_SENSES and not isinstance(raw.get("text_config"), dict):
        return (
            f"a model that also reads images or sound ({first}), which is not served, nor is its text part alone. Pass "
            "a text model, often one of the same family."
        )
    return ""


def without_config(path: Path) -> Iterator[str]:
    """What a directory without config.json may be, the surest first."""
    files = sorted(path.iterdir())
    names = {file.name for file in files}
    if not files:
        yield f"an empty directory. {ORIGINAL}."
    if "model_index.json" in names:
        yield f"a diffusers pipeline, which makes images. {NOT_GENERATING}"
    if {"snapshots", "refs"} <= names:
        found = [str(file) for file in sorted((path / "snapshots").iterdir()) if (file / "config.json").exists()]
        yield f"a folder of the hub's cache. Pass a snapshot within it: {', '.join(found) or 'none is whole'}."
    if inner := [file.name for file in files if (file / "config.json").exists()]:
        yield f"a directory of directories, and itself has no config.json. Pass one of them: {', '.join(inner[:8])}."
    if names & {"params.json", "consolidated.safetensors", "consolidated.00.pth"}:
        yield (
            "in the layout of its authors (params.json, consolidated.*), which is not read. Use the same model in "
            "Hugging Face format: config.json, model*.safetensors and tokenizer.json."
        )
    if names & {"dataset_info.json", "dataset_infos.json", "dataset_dict.json"}:
        yield "a directory of data and not a model. Pass the directory of a model."
    formats = {FORMATS.get(file.suffix.lower()) for file in files}
    for kind in (GGUF, ONNX, KERAS, PICKLE, DATASET):
        if kind in formats:
            first = next(file for file in files if FORMATS.get(file.suffix.lower()) == kind)
            yield f"a directory without config.json. {first.name} is {kind.what}. {kind.advice}."
    if any(file.suffix == ".safetensors" for file in files):
        yield "a directory of weights that has no config.json. Copy config.json and tokenizer.json of its model there."
