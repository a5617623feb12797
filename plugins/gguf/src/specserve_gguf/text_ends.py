"""Which tokens of a GGUF file end a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_gguf.tokenizer_vocabulary import CONTROL, PREFIX, special_id

if TYPE_CHECKING:
    from specserve_gguf.text_keys import TextKeys
    from specserve_gguf.tokenizer_vocabulary import Vocabulary

END_OF_TURN = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<|END_OF_TURN_TOKEN|>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|call|>",
)
"""Control tokens that end a text in every model that has them, where the file names no end of turn."""
END_OF_MESSAGE = ("<|eom_id|>",)
HARMONY = {"<|return|>", "<|call|>"}
"""In vocabularies with both, `<|end|>` ends a message and more may follow."""
GEMMA4 = "gemma4"
OF_GEMMA4 = ("<eos>", "<turn|>", "<|tool_response>")
"""Ends of Gemma 4 by their names, whatever their type: files have them as ordinary tokens, or as the user's."""


def is_gemma4(keys: TextKeys) -> bool:
    return GEMMA4 in (keys.text(f"{PREFIX}model"), keys.text(f"{PREFIX}pre"))


def end_ids(keys: TextKeys, vocabulary: Vocabulary) -> list[int]:
    """EOS, the end of a turn and of a message; by their names where the file does not give these two."""
    found = [special_id(keys, vocabulary, "eos_token_id")]
    for key, names in (("eot_token_id", END_OF_TURN), ("eom_token_id", END_OF_MESSAGE)):
        stated = special_id(keys, vocabulary, key)
        found += ends_by_name(vocabulary, names) if stated is None else [stated]
    if is_gemma4(keys):
        found += (id for id, token in enumerate(vocabulary.tokens) if token in OF_GEMMA4 and vocabulary.is_token(id))
    return list(dict.fromkeys(id for id in found if id is not None))


def ends_by_name(vocabulary: Vocabulary, names: tuple[str, ...]) -> list[int]:
    by_name = {vocabulary.tokens[id]: id for id in vocabulary.of_type(CONTROL) if vocabulary.tokens[id] in names}
    if by_name.keys() >= HARMONY:
        by_name.pop("<|end|>", None)
    return sorted(by_name.values())
