"""The hooks of gguf. Imports no torch: a server whose model is in another format pays nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import hookimpl

if TYPE_CHECKING:
    from specserve.api.models import WeightFormat


@hookimpl
def weight_formats() -> list[WeightFormat]:
    from specserve_gguf.source import Gguf

    return [Gguf()]
