"""Where the demo model, its adapters and its draft heads lie."""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "model"
"""A directory in Hugging Face format: safetensors, tokenizer, chat template."""
ADAPTERS_DIR = Path(__file__).parent / "adapters"
"""LoRA adapters of the demo model in PEFT's format, a directory each: `docstrings` and `tests`."""
HEADS_DIR = Path(__file__).parent / "heads"
EAGLE3_DIR, EAGLE_DIR, MTP_DIR, STANDALONE_DIR = (HEADS_DIR / kind for kind in ("eagle3", "eagle", "mtp", "standalone"))
"""For the plugin `eagle`: draft heads of the demo model, and a stand-alone draft model of its vocabulary."""
