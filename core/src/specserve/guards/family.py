"""A plugin's family of models, made safe to ask: where it raises or answers something else, start-up says whose fault
that is. Knows nothing of what the answers mean."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from specserve.guards.asking import Asked
from specserve.models.decoder import DecoderModel
from specserve.models.family import LayerTraits, ModelFamily, StoredAs
from specserve.models.layer_attention import LayerAttention
from specserve.models.mixer import MixerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig


class GuardedFamily(ModelFamily):
    """Its attributes are the family's own."""

    def __init__(self, owner: str, family: ModelFamily) -> None:
        self.family, self.asked = family, Asked(owner, f"family {family.name}", ModelFamily)
        self.name, self.architectures = family.name, tuple(family.architectures)
        self.within = tuple(family.within)
        self.absent, self.reads, self.activations = family.absent, family.reads, family.activations
        self.activation_key, self.rotates_parts, self.toy = family.activation_key, family.rotates_parts, family.toy
        self.decoder = partial(self.asked.answer, "its decoder", is_decoder, family.decoder)

    def renamed(self, raw: RawJson) -> RawJson:
        return self.asked.answer("renamed", is_object, self.family.renamed, raw)

    def traits(self, raw: RawJson) -> LayerTraits:
        return self.asked.answer("traits", lambda answer: isinstance(answer, LayerTraits), self.family.traits, raw)

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        def is_right(answer: object) -> bool:
            return isinstance(answer, tuple) and len(answer) == num_layers and all(map(is_window, answer))

        return self.asked.answer("sliding_windows", is_right, self.family.sliding_windows, raw, num_layers, where)

    def layer_attention(self, raw: RawJson, num_layers: int, where: str) -> tuple[LayerAttention, ...]:
        def is_right(answer: object) -> bool:
            return is_by_layer(answer, num_layers, lambda each: isinstance(each, LayerAttention))

        return self.asked.answer("layer_attention", is_right, self.family.layer_attention, raw, num_layers, where)

    def inner_sizes(self, raw: RawJson, num_layers: int) -> tuple[int, ...]:
        def is_right(answer: object) -> bool:
            return is_by_layer(answer, num_layers, lambda each: type(each) is int and each > 0)

        return self.asked.answer("inner_sizes", is_right, self.family.inner_sizes, raw, num_layers)

    def mixers(self, raw: RawJson, num_layers: int, where: str) -> tuple[MixerConfig | None, ...]:
        def is_right(answer: object) -> bool:
            return is_by_layer(answer, num_layers, lambda each: each is None or isinstance(each, MixerConfig))

        return self.asked.answer("mixers", is_right, self.family.mixers, raw, num_layers, where)

    def main_rotation(self, raw: RawJson) -> RawJson:
        return self.asked.answer("main_rotation", is_object, self.family.main_rotation, raw)

    def rotations(self, raw: RawJson, num_layers: int, where: str) -> tuple[RawJson | None, ...]:
        def is_right(answer: object) -> bool:
            return is_by_layer(answer, num_layers, lambda each: each is None or is_object(each))

        return self.asked.answer("rotations", is_right, self.family.rotations, raw, num_layers, where)

    def check(self, raw: RawJson, where: str) -> None:
        self.asked.answer("check", lambda answer: answer is None, self.family.check, raw, where)

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        def is_right(answer: Any) -> bool:
            return all(isinstance(name, str) and isinstance(part, StoredAs) for name, part in answer.items())

        return self.asked.answer("stored_as", is_right, self.family.stored_as, config)

    def left_out(self, config: ModelConfig) -> tuple[str, ...]:
        def is_right(answer: object) -> bool:
            return isinstance(answer, tuple) and all(isinstance(each, str) for each in answer)

        return self.asked.answer("left_out", is_right, self.family.left_out, config)


def is_by_layer(answer: object, num_layers: int, is_right: Callable[[object], bool]) -> bool:
    """Something right for each layer, or nothing at all."""
    return isinstance(answer, tuple) and len(answer) in (0, num_layers) and all(map(is_right, answer))


def is_decoder(answer: object) -> bool:
    return isinstance(answer, DecoderModel)


def is_object(answer: object) -> bool:
    return isinstance(answer, dict)


def is_window(each: object) -> bool:
    return each is None or (type(each) is int and each > 0)
