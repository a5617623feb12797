"""What a GGUF file says of text: tokenizer, chat template, sampling; as the files that a model in Hugging Face format
has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from specserve.api import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve_gguf.metadata import Value

CONTROL = 3


def text_files(metadata: Mapping[str, Value]) -> dict[str, bytes]:
    """The contents of tokenizer.json and the other files, by their names. Raises ModelError."""
    tokens, kinds = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    merges = metadata.get("tokenizer.ggml.merges")
    if metadata.get("tokenizer.ggml.model") != "gpt2" or not isinstance(tokens, list) or not isinstance(merges, list):
        raise ModelError("only tokenizers of kind gpt2 are read yet.")
    special = [
        {
            "id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True,
        }
        for index, token in enumerate(tokens)
        if kinds is not None and kinds[index] == CONTROL
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
            "vocab": {token: index for index, token in enumerate(tokens)}, "merges": merges,
        },
    }  # fmt: skip
    eos = tokens[metadata["tokenizer.ggml.eos_token_id"]]
    found = {
        "tokenizer.json": json.dumps(tokenizer).encode(),
        "tokenizer_config.json": json.dumps({"eos_token": eos}).encode(),
        "generation_config.json": json.dumps({"eos_token_id": metadata["tokenizer.ggml.eos_token_id"]}).encode(),
    }
    if isinstance(template := metadata.get("tokenizer.chat_template"), str):
        found["chat_template.jinja"] = template.encode()
    return found
