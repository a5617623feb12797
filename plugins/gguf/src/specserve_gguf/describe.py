"""What a GGUF file says of text: tokenizer, chat template, sampling; as the files that a model in Hugging Face format
has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from specserve_gguf.chat_templates import as_setting, chat_templates
from specserve_gguf.sampling_settings import generation_settings
from specserve_gguf.text_keys import TextKeys
from specserve_gguf.tokenizer_files import tokenizer_file, tokenizer_settings
from specserve_gguf.tokenizer_vocabulary import read_vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def text_files(metadata: Mapping[str, object], file: Path | str = "the GGUF file") -> dict[str, bytes]:
    """The contents of tokenizer.json and the other files, by their names. `metadata`: the file's keys and values,
    arrays as lists or of numpy. Raises ModelError, which names `file`."""
    keys = TextKeys(str(file), metadata)
    vocabulary = read_vocabulary(keys)
    settings = tokenizer_settings(keys, vocabulary)
    templates = chat_templates(keys)
    found = {"tokenizer.json": tokenizer_file(keys, vocabulary)}
    if list(templates) == ["default"]:
        found["chat_template.jinja"] = templates["default"].encode()
    elif templates:
        settings["chat_template"] = as_setting(templates)
    found["tokenizer_config.json"] = as_json(settings)
    found["generation_config.json"] = as_json(generation_settings(keys, vocabulary))
    return found


def as_json(content: dict[str, object]) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=1).encode()
