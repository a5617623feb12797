"""Where the demo model, its adapters and its draft heads lie, and a draft head of SmolLM2-135M-Instruct."""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "model"
"""A directory in Hugging Face format: safetensors, tokenizer, chat template."""
ADAPTERS_DIR = Path(__file__).parent / "adapters"
"""LoRA adapters of the demo model in PEFT's format, a directory each: `docstrings` and `tests`."""
HEADS_DIR = Path(__file__).parent / "heads"
"""Draft models of the demo model, for the plugin `eagle`."""
EAGLE3_DIR, EAGLE_DIR, MTP_DIR = HEADS_DIR / "eagle3", HEADS_DIR / "eagle", HEADS_DIR / "mtp"
STANDALONE_DIR, DSPARK_DIR = HEADS_DIR / "standalone", HEADS_DIR / "dspark"
UNO_DIR = HEADS_DIR / "uno"
"""A draft adapter, for the plugin `uno`."""
SMOLLM2_EAGLE3_DIR = HEADS_DIR / "smollm2-eagle3"
"""Of a model that is not in here; see `make demo MODEL=smollm2`."""
