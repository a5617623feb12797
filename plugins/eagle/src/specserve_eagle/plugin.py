"""eagle's hooks: the drafter over the head or model that `eagle.model` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import hookimpl
from specserve_eagle.draft_model import Lookahead
from specserve_eagle.drafter import EagleDrafter
from specserve_eagle.load import load_draft_model
from specserve_eagle.options import EagleOptions

if TYPE_CHECKING:
    from specserve.api import EngineConfig
    from specserve.api.models import ServedModel


class EaglePlugin:
    @hookimpl
    def plugin_options(self) -> type[EagleOptions]:
        return EagleOptions

    @hookimpl
    def make_drafter(self, model: ServedModel, config: EngineConfig, options: EagleOptions) -> EagleDrafter:
        lookahead = Lookahead(options.max_rows, options.topk > 1)
        draft_model = load_draft_model(config, options, model, lookahead)
        return EagleDrafter(draft_model, options)
