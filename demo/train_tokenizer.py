"""Train the demo model's byte-level BPE tokenizer on the training side of the corpus.

Run: `python train_tokenizer.py OUTPUT_DIR`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from corpus import read_corpus

VOCAB_SIZE = 8192
END_OF_TEXT = "<|endoftext|>"
SPECIAL_TOKENS = [END_OF_TEXT, "<|user|>", "<|assistant|>", "<|end|>"]

# The model is a code model without dialogue training: a chat is shown to it as commented Python.
# Nor was it trained to call tools: they are listed in the form that Qwen's models know, so that clients can be tried.
CHAT_TEMPLATE = (
    "{% for tool in tools or [] %}# {{ tool | tojson }}\n{% endfor %}"
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant', 'tool'] %}"
    "{{ raise_exception('the demo model knows the roles system, user, assistant and tool, got ' ~ message['role']) }}"
    "{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ message['content'] }}\n"
    "{% for call in message['tool_calls'] or [] %}"
    "<tool_call>\n{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}\n</tool_call>\n"
    "{% endfor %}"
    "{% else %}# {{ message['content'] | replace('\n', '\n# ') }}\n{% endif %}"
    "{% endfor %}"
)


def main(output_dir: Path) -> None:
    output_dir.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(read_corpus().train, trainer)
    tokenizer.save(str(output_dir / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": CHAT_TEMPLATE,
    }
    (output_dir / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
