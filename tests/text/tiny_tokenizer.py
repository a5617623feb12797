"""A small byte-level tokenizer, trained in memory, in a model directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "def add(a, b):\n    return a + b\n\n\nclass Point:\n    x = 0\n# naïve café 漢字 🙂\n"

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def write_model_dir(path: Path, chat_template: str = TEMPLATE) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {"eos_token": "<|end|>", "chat_template": chat_template}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    (path / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9], "temperature": 0.5}))
