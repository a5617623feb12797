"""What adapter_config.json says of the drafts that the adapter was trained for, in the field `uno_config`.

PEFT does not know the field. Where an adapter lacks it, options say what it was trained with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from specserve.api import ConfigError
from specserve.api.files import convert
from specserve_lora.adapter import read_config
from specserve_lora.adapter_dir import CONFIG
from specserve_lora.uno.options import LEAST_END, MAX_DRAFT_TOKENS

if TYPE_CHECKING:
    from specserve_lora.adapter_dir import AdapterDir
    from specserve_lora.uno.options import UnoOptions

FIELD = "uno_config"
DEFAULT_BLOCK = 8


class StatedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`uno_config`, which must be whole where it is there."""

    mask_token_id: Annotated[int, Meta(ge=LEAST_END)]
    block_size: Annotated[int, Meta(ge=1, le=MAX_DRAFT_TOKENS)]


class UnoConfig(msgspec.Struct, frozen=True):
    """Of the drafts of this engine."""

    mask_token_id: int
    """Random tokens are from 1 to below this number."""
    draft_tokens: int

    def within(self, limit: int) -> UnoConfig:
        """Where the engine has drafts of `limit` tokens at most."""
        return msgspec.structs.replace(self, draft_tokens=min(self.draft_tokens, limit))


def read_uno_config(directory: AdapterDir, options: UnoOptions, vocab_size: int) -> UnoConfig:
    """Options count before the file. Raises ConfigError; that the file is JSON of an adapter is known."""
    source, raw = directory.source(CONFIG), msgspec.json.decode(read_config(directory))
    stated = None
    if raw.get(FIELD) is not None:
        stated = convert(raw[FIELD], StatedConfig, lambda wrong: ConfigError(f"{source}: {FIELD}: {wrong}"))
    end, where = options.mask_token_id, "uno.mask_token_id"
    if end is None and stated is not None:
        end, where = stated.mask_token_id, f"{source}: {FIELD}: mask_token_id"
    if end is not None and end > vocab_size:
        raise ConfigError(
            f"{where} must be at most {vocab_size}, the tokens of the model; got {end}. It bounds the random tokens "
            "that the adapter was trained with: the adapter is for another model, or the number is wrong."
        )
    most = options.draft_tokens or (DEFAULT_BLOCK if stated is None else stated.block_size)
    return UnoConfig(vocab_size if end is None else end, most)
