"""The options of lora and their ranges."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from specserve.api import ConfigError, RequestError, parse_bytes
from specserve.api.files import find_root
from specserve_lora.adapter_dir import CONFIG, WEIGHTS, unconfined_dir
from specserve_lora.names import NAME_RULE, is_name


class LoraOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`--set lora.adapters.NAME=PATH`."""

    adapters: dict[str, str] = {}
    """Loaded at start-up: name to directory. These may be anywhere."""
    root: str | None = None
    """The directory that REST may load adapters from; None: REST loads and unloads nothing."""
    max_loaded: Annotated[int, Meta(ge=1, le=1024)] = 8
    """Adapters in memory at once; others are evicted, and loaded again when they are requested."""
    max_rank: Annotated[int, Meta(ge=1, le=256)] = 256
    """Adapters with a larger rank are refused."""
    max_memory: str = "1G"
    """Weights of loaded adapters, in the model's dtype."""

    def __post_init__(self) -> None:
        for name in self.adapters:
            if not is_name(name):
                raise ConfigError(f"adapters: {name!r} is not an adapter's name; use {NAME_RULE}.")
        parse_bytes(self.max_memory, "max_memory")
        # wrong paths are told before the model is loaded
        for name, path in self.adapters.items():
            check_files(name, path)
        find_root("lora.root", self.root)


def check_files(name: str, path: str) -> None:
    """Raises ConfigError where the adapter's files are not there."""
    try:
        directory = unconfined_dir(path)
        for file in (CONFIG, WEIGHTS):
            directory.open(file).close()
    except RequestError as error:
        raise ConfigError(f"lora.adapters.{name}: {error}") from None
