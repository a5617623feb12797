"""A plugin's check of requests, made safe to call: only its RequestError refuses a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import RequestError
from specserve.faults import FAULTS
from specserve.plugins.loaded_plugin import cause_of

if TYPE_CHECKING:
    from specserve.faults import PluginPart
    from specserve.plugins.loaded_plugin import LoadedPlugin
    from specserve.types import GenerateRequest


class GuardedRequestCheck:
    """A check that raises anything else than a RequestError is left out."""

    def __init__(self, plugin: LoadedPlugin, part: PluginPart) -> None:
        self.plugin, self.part = plugin, part

    def __call__(self, request: GenerateRequest) -> None:
        if not self.part.enabled:
            return
        try:
            self.plugin.call("check_request", request=request)
        except RequestError:
            self.part.succeeded()
            raise
        except FAULTS as error:
            self.part.failed(cause_of(error), "; the request is taken without it")
        else:
            self.part.succeeded()
