"""Where the demo model, its adapters and its draft heads lie."""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "model"
"""A directory in Hugging Face format: safetensors, tokenizer, chat template."""
ADAPTERS_DIR = Path(__file__).parent / "adapters"
"""LoRA adapters of the demo model in PEFT's format, a directory each: `docstrings` and `tests`."""
EAGLE3_DIR = Path(__file__).parent / "heads" / "eagle3"
"""An EAGLE-3 head of the demo model, for the plugin `eagle`."""
