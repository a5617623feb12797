"""Which models transformers computes here, and how one is loaded. Imports transformers where a model is loaded only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ModelError
from specserve.api.models import ModelLibrary

if TYPE_CHECKING:
    from specserve.api.files import RawJson
    from specserve.api.models import LoadRequest, ServedModel
    from specserve_transformers.options import Architectures

DTYPES = ("float32", "bfloat16", "float16")


class TransformersLibrary(ModelLibrary):
    """architectures: all that it can, or those that no family has."""

    name = "transformers"

    def __init__(self, architectures: Architectures) -> None:
        self.architectures = architectures

    def serves(self, raw: RawJson, *, native: bool) -> bool:
        return self.architectures == "all" or not native

    def dtype(self, raw: RawJson, where: str) -> str:
        found = str(raw.get("dtype") or raw.get("torch_dtype") or "float32").removeprefix("torch.")
        if found not in DTYPES:
            raise ModelError(f"{where}: dtype must be one of {', '.join(DTYPES)}; got {found!r}. Pass --dtype.")
        return found

    def load(self, request: LoadRequest) -> ServedModel:
        from specserve_transformers.load import load

        return load(request)
