"""The hooks of transformers. Imports neither torch nor transformers: a server whose model it does not serve pays
nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import hookimpl
from specserve_transformers.options import TransformersOptions

if TYPE_CHECKING:
    from specserve.api.models import ModelLibrary


@hookimpl
def plugin_options() -> type[TransformersOptions]:
    return TransformersOptions


@hookimpl
def model_libraries(options: TransformersOptions) -> list[ModelLibrary]:
    from specserve_transformers.library import TransformersLibrary

    return [TransformersLibrary(options.architectures)]
