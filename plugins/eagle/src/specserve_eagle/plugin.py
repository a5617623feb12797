"""eagle's hooks: the drafter over the head or model that `eagle.model` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import hookimpl
from specserve_eagle.load import load_drafter
from specserve_eagle.options import EagleOptions

if TYPE_CHECKING:
    from specserve.api import Drafter, EngineConfig
    from specserve.api.models import ServedModel


class EaglePlugin:
    @hookimpl
    def plugin_options(self) -> type[EagleOptions]:
        return EagleOptions

    @hookimpl
    def make_drafter(self, model: ServedModel, config: EngineConfig, options: EagleOptions) -> Drafter:
        return load_drafter(config, options, model)
