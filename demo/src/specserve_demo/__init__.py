"""Where the demo model lies."""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "model"
"""A directory in Hugging Face format: safetensors, tokenizer, chat template."""
ADAPTERS_DIR = Path(__file__).parent / "adapters"
"""LoRA adapters of the demo model in PEFT's format, a directory each: `docstrings` and `tests`."""
