"""A plugin's library of models, made safe to ask: where it raises or answers something else, start-up says whose fault
that is. Knows nothing of what the answers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.guards.asking import Asked
from specserve.models.library import ModelLibrary
from specserve.models.served_model import ServedModel

if TYPE_CHECKING:
    from specserve.model_files import RawJson
    from specserve.models.library import LoadRequest


class GuardedLibrary(ModelLibrary):
    def __init__(self, owner: str, library: ModelLibrary) -> None:
        self.library, self.asked = library, Asked(owner, f"library {library.name}", ModelLibrary)
        self.name = library.name

    def serves(self, raw: RawJson, *, native: bool) -> bool:
        def ask() -> bool:
            return self.library.serves(raw, native=native)

        return self.asked.answer("serves", lambda answer: isinstance(answer, bool), ask)

    def dtype(self, raw: RawJson, where: str) -> str:
        return self.asked.answer("dtype", lambda answer: isinstance(answer, str), self.library.dtype, raw, where)

    def load(self, request: LoadRequest) -> ServedModel:
        return self.asked.answer("load", lambda answer: isinstance(answer, ServedModel), self.library.load, request)
