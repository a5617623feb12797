"""SmolLM3: Hugging Face, 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.families.llama import Llama
from specserve.models.windows import SLIDING, by_layer_types, refuse_contradiction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson


class SmolLM3(Llama):
    """A Llama that rotates nothing in every fourth layer (Yang et al., 2025: "Rope to Nope and Back Again")."""

    name = "smollm3"
    architectures = ("SmolLM3ForCausalLM",)
    reads = ("no_rope_layers", "no_rope_layer_interval")
    absent: Mapping[str, object] = {
        "num_key_value_heads": 4,
        "rope_theta": 2_000_000.0,
        "no_rope_layer_interval": 4,
        "tie_word_embeddings": True,
    }
    toy: Mapping[str, object] = {"no_rope_layers": [1, 0], "pad_token_id": 0}

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        if raw.get("layer_types") is None:
            kinds = ["full_attention" if rotated else SLIDING for rotated in rotated_layers(raw, num_layers, where)]
            raw = {**raw, "layer_types": kinds}
        return by_layer_types(raw, num_layers, where)

    def rotations(self, raw: RawJson, num_layers: int, where: str) -> tuple[RawJson | None, ...]:
        return tuple(raw if rotated else None for rotated in rotated_layers(raw, num_layers, where))

    def check(self, raw: RawJson, where: str) -> None:
        refuse_contradiction(raw, where)


def rotated_layers(raw: RawJson, num_layers: int, where: str) -> list[bool]:
    """Whether each layer rotates queries and keys."""
    found = raw.get("no_rope_layers")
    if found is None:
        interval = raw["no_rope_layer_interval"]
        if type(interval) is not int or interval < 1:
            raise ModelError(
                f"{where}: no_rope_layer_interval must be a number of layers, at least 1; got {interval!r}."
            )
        return [(layer + 1) % interval != 0 for layer in range(num_layers)]
    if not isinstance(found, list) or len(found) < num_layers or not {*map(repr, found)} <= {"0", "1"}:
        raise ModelError(
            f"{where}: no_rope_layers must have a 1 for each layer that rotates, and a 0 for each other one, of "
            f"{num_layers} layers; got {found!r}."
        )
    return [each == 1 for each in found[:num_layers]]
