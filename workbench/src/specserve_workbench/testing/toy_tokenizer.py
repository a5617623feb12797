"""The toy's tokenizer: one token per byte, a few merges, four special tokens. Made with the tokenizers library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = ("<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>")
PAIRS = (
    "thheineranreonatenndtiesorteofedisitalarsttontngsehaasouiolevecomedehiriroicne"
    "earacelichllbemasiomurcaeltalansdifohopeec"
)
MERGED = tuple(PAIRS[start : start + 2] for start in range(0, len(PAIRS), 2))
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ 'assistant' if message.role == 'assistant' else 'user' }}|>"
    "{{ message.content }}{% if message.role == 'assistant' %}<|eos|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
VOCAB_SIZE = 256 + len(MERGED) + len(SPECIAL)
EOS_ID = 256 + len(MERGED) + SPECIAL.index("<|eos|>")


def write_tokenizer(path: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json with a small chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: index for index, symbol in enumerate([*alphabet, *MERGED])}
    merges = [(pair[0], pair[1]) for pair in MERGED]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    assert tokenizer.get_vocab_size() == VOCAB_SIZE, tokenizer.get_vocab_size()
    tokenizer.save(str(path / "tokenizer.json"))
    content = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|eos|>",
        "chat_template": CHAT_TEMPLATE,
        "model_max_length": 2048,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
