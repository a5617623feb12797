"""tokenizer.json of byte-level byte-pair encoding (`tokenizer.ggml.model = gpt2`).

The file has tokens, merges and the name of the pre-tokenizer; `tokenizer_splits` knows what that does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from specserve.api import ModelError
from specserve_gguf.text_keys import ANOTHER_TOKENIZER
from specserve_gguf.tokenizer_parts import added_tokens, post_processor, tokenizer_json
from specserve_gguf.tokenizer_splits import BYTES, DEFAULT, PRE_TOKENIZERS, PreTokenizer
from specserve_gguf.tokenizer_vocabulary import PREFIX, read_merges

if TYPE_CHECKING:
    from specserve_gguf.text_keys import TextKeys
    from specserve_gguf.tokenizer_vocabulary import Vocabulary

log = logging.getLogger(__name__)


def byte_level_json(keys: TextKeys, vocabulary: Vocabulary) -> dict[str, object]:
    """Raises ModelError."""
    chosen = pre_tokenizer(keys)
    ids = vocabulary.ids
    merges = read_merges(keys, ids)
    if merges is None:
        raise keys.broken(f"{PREFIX}merges is missing: without it no text can be turned into tokens")
    # A byte without a token is left out, as the models' own tokenizers do: files name EOS as the unknown token.
    model = bpe(ids, merges, unknown=None)
    steps: dict[str, object] = {
        "normalizer": {"type": "NFC"} if chosen.nfc else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(chosen.steps)},
        "post_processor": post_processor(keys, vocabulary, begins_with_bos=chosen.begins_with_bos),
        "decoder": BYTES,
    }
    return tokenizer_json({**model, "ignore_merges": chosen.whole_words}, steps, added_tokens(keys, vocabulary))


def bpe(ids: dict[str, int], merges: list[tuple[str, str]], unknown: str | None) -> dict[str, object]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": ids,
        "merges": merges,
    }


def pre_tokenizer(keys: TextKeys) -> PreTokenizer:
    """Raises ModelError for a name that is not known: another one's pieces would be other tokens, unnoticed."""
    name = keys.text(f"{PREFIX}pre")
    if name is None or name == "default":
        log.warning(
            "%s does not say how text is cut before it becomes tokens (%spre = %s); it is cut as llama.cpp does then, "
            "which may not be how the model was trained. A newer conversion of the model says it",
            keys.file,
            PREFIX,
            name,
        )
        return DEFAULT
    if name not in PRE_TOKENIZERS:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise ModelError(
            f"{keys.file}: {PREFIX}pre is {name[:60]!r}, a way to cut text that is not known; known: {known}. "
            f"{ANOTHER_TOKENIZER}"
        )
    return PRE_TOKENIZERS[name]
