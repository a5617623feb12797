"""A model directory as GGUF, by llama.cpp's converter: SOURCES MODEL OUT TYPE [TARGET], in build/peers/llamacpp."""

from __future__ import annotations

import sys


def main(sources: str, model: str, out: str, kind: str, target: str = "") -> None:
    """target: the directory of the model that a draft head is for."""
    sys.path[:0] = [sources, f"{sources}/gguf-py"]
    import conversion.base
    import convert_hf_to_gguf

    conversion.base.TextModel.get_vocab_base_pre = some_pre_tokenizer
    conversion.base.ModelBase.no_mtp = True  # blocks for multi-token prediction, which are not asked for
    sys.argv[1:] = [model, "--outfile", out, "--outtype", kind, *(["--target-model-dir", target] if target else [])]
    convert_hf_to_gguf.main()


def some_pre_tokenizer(*_: object) -> str:
    """It knows them by a hash, and not that of the demo model's. Here prompts are token ids."""
    return "qwen2"


if __name__ == "__main__":
    main(*sys.argv[1:])
