"""A plugin's family of models, made safe to ask: where it raises or answers something else, start-up says whose fault
that is. Knows nothing of what the answers mean."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from specserve.code_places import in_brackets, place_of
from specserve.errors import PluginError, SpecserveError
from specserve.faults import FAULTS, full_summary
from specserve.models.decoder import DecoderModel
from specserve.models.family import LayerTraits, ModelFamily, StoredAs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig

T = TypeVar("T")


class GuardedFamily(ModelFamily):
    """Its attributes are the family's own."""

    def __init__(self, owner: str, family: ModelFamily) -> None:
        self.owner, self.family = owner, family
        self.name, self.architectures = family.name, tuple(family.architectures)
        self.absent, self.reads, self.activations = family.absent, family.reads, family.activations
        self.rotates_parts, self.toy = family.rotates_parts, family.toy
        self.decoder = partial(self.asked, "its decoder", is_decoder, family.decoder)

    def traits(self, raw: RawJson) -> LayerTraits:
        return self.asked("traits", lambda answer: isinstance(answer, LayerTraits), self.family.traits, raw)

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        def is_right(answer: object) -> bool:
            return isinstance(answer, tuple) and len(answer) == num_layers and all(map(is_window, answer))

        return self.asked("sliding_windows", is_right, self.family.sliding_windows, raw, num_layers, where)

    def check(self, raw: RawJson, where: str) -> None:
        self.asked("check", lambda answer: answer is None, self.family.check, raw, where)

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        def is_right(answer: Any) -> bool:
            return all(isinstance(name, str) and isinstance(part, StoredAs) for name, part in answer.items())

        return self.asked("stored_as", is_right, self.family.stored_as, config)

    def asked(self, method: str, is_right: Callable[[Any], bool], ask: Callable[..., T], *arguments: object) -> T:
        """The answer. Errors of ours, which name a file, pass."""
        try:
            answer = ask(*arguments)
            if is_right(answer):
                return answer
            what = f"answered {type(answer).__name__}{in_brackets(place_of(ask))}"
        except SpecserveError:
            raise
        except FAULTS as error:
            what = full_summary(error, ask)
        raise PluginError(
            f"{self.owner}: its family {self.name} {what}, when it was asked for {method}. "
            f"See specserve.models.family.ModelFamily, or remove --plugin {self.owner}."
        )


def is_decoder(answer: object) -> bool:
    return isinstance(answer, DecoderModel)


def is_window(each: object) -> bool:
    return each is None or (type(each) is int and each > 0)
