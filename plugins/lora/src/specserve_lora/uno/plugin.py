"""uno's hooks: the draft adapter, read and packed as adapters of requests are, and the drafter that has it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from specserve.api import ConfigError, DraftAdapter, RequestError, hookimpl
from specserve_lora.adapter import AdapterReader
from specserve_lora.deltas import add_deltas
from specserve_lora.modules import modules_of
from specserve_lora.uno.config import read_uno_config
from specserve_lora.uno.drafter import UnoDrafter
from specserve_lora.uno.options import UnoOptions, directory_of

if TYPE_CHECKING:
    from specserve.api import AdaptableModel, EngineConfig

MAX_RANK = 256


class UnoPlugin:
    def __init__(self) -> None:
        self.drafter: UnoDrafter | None = None
        """Made by `adapt_model`, which start-up calls first."""

    @hookimpl
    def plugin_options(self) -> type[UnoOptions]:
        return UnoOptions

    @hookimpl
    def adapt_model(self, model: AdaptableModel, config: EngineConfig, options: UnoOptions) -> None:
        assert options.adapter is not None, "the options refuse that"
        directory = directory_of(options.adapter)
        weight = next(iter(model.projections.values())).weight
        reader = AdapterReader(
            modules_of(model.projections), weight.dtype, weight.device, MAX_RANK, sys.maxsize, "uno serves at most"
        )
        try:
            adapter = reader.read(directory)
            stated = read_uno_config(directory, options, model.vocab_size)
        except RequestError as error:
            raise ConfigError(f"uno.adapter: {error}") from None
        add_deltas(model)
        packed = DraftAdapter(model.pack_adapter(adapter.weights), adapter.rank)
        self.drafter = UnoDrafter(packed, stated.within(config.max_draft_tokens))

    @hookimpl
    def make_drafter(self) -> UnoDrafter:
        assert self.drafter is not None, "adapt_model is called first"
        return self.drafter
