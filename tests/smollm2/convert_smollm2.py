"""SmolLM2-135M-Instruct as a model directory of bfloat16, for tests against transformers: its GGUF file, converted by
transformers.

Run: `python tests/smollm2/convert_smollm2.py FILE DIRECTORY`. Needs transformers and gguf.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path


def convert(file: Path, directory: Path) -> None:
    """Leaves `directory` complete or not at all."""
    print("== converting SmolLM2-135M-Instruct to bfloat16 (half a minute)", flush=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f"{directory.name}-") as folder:
        write(file, Path(folder, "converted"))
        shutil.rmtree(directory, ignore_errors=True)
        Path(folder, "converted").rename(directory)


def write(file: Path, directory: Path) -> None:
    """Weights, config.json, tokenizer and chat template."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    # transformers refuses to write what was read from GGUF; these weights are plain tensors
    del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(**source).save_pretrained(directory)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
