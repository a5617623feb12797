"""The options of uno and their ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from specserve.api import ConfigError, ModelError, RequestError
from specserve.api.files import expand_user, locate_on_disk
from specserve_lora.adapter_dir import CONFIG, WEIGHTS, AdapterDir, unconfined_dir

MAX_DRAFT_TOKENS = 64
LEAST_END = 2
"""Of `mask_token_id`: there is one random token at least."""
NOT_OFFERED = " No installed package offers the name either."
OF_REPOSITORY = "adapter"
"""The folder of published repositories that has the adapter."""


class UnoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`--set uno.adapter=PATH`."""

    adapter: str | None = None
    """The draft adapter: a directory in PEFT's format, or one with such a directory named `adapter`; or a name that an
    installed package offers."""
    draft_tokens: Annotated[int, Meta(ge=1, le=MAX_DRAFT_TOKENS)] | None = None
    """Draft tokens of a request at most, the rows of its pass; None: the adapter's `block_size`, else 8."""
    mask_token_id: Annotated[int, Meta(ge=LEAST_END)] | None = None
    """Random tokens are from 1 to below this number, as in the adapter's training; None: the adapter's
    `mask_token_id`, else the vocabulary's size."""

    def __post_init__(self) -> None:
        """What is wrong with the adapter's path is told before the model is loaded."""
        if self.adapter is None:
            raise ConfigError(
                "uno.adapter is not set: which draft adapter? Pass --set uno.adapter=PATH, a directory that PEFT's "
                "save_pretrained wrote."
            )
        directory_of(self.adapter)


def directory_of(path: str) -> AdapterDir:
    """Raises ConfigError where the adapter's files are not there."""
    found = offered(path) or path
    try:
        inner = expand_user(found) / OF_REPOSITORY
        has_inner = not (inner.parent / CONFIG).exists() and (inner / CONFIG).exists()
        directory = unconfined_dir(str(Path(found) / OF_REPOSITORY) if has_inner else found)
        for file in (CONFIG, WEIGHTS):
            directory.open(file).close()
    except RequestError as error:
        raise ConfigError(f"uno.adapter = {path!r}: {error}{'' if found != path else NOT_OFFERED}") from None
    return directory


def offered(name: str) -> str | None:
    """The directory that an installed package offers by this name, which wins over one of that name that lies here, as
    with models; None where the name is a path."""
    try:
        found = None if "/" in name else locate_on_disk(name)
    except ModelError:
        return None
    return None if found is None else str(found)
