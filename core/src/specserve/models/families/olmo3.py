"""OLMo 3: OLMo Team, 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.families.olmo2 import Olmo2
from specserve.models.kinds_of_layers import kinds, main_rotation, rotations, windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson

BASES = {"full_attention": ("rope_theta", 500_000.0), "sliding_attention": (None, 500_000.0)}
FULL_EVERY = 4


class Olmo3(Olmo2):
    """An OLMo 2 in which three of four layers have a window, and a rotation of their own."""

    name = "olmo3"
    architectures = ("Olmo3ForCausalLM",)
    toy: Mapping[str, object] = {"sliding_window": 40, "layer_types": ["sliding_attention", "full_attention"]}

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        return windows(raw, kinds(raw, num_layers, FULL_EVERY, where), where)

    def main_rotation(self, raw: RawJson) -> RawJson:
        return main_rotation(raw, BASES)

    def rotations(self, raw: RawJson, num_layers: int, where: str) -> tuple[RawJson | None, ...]:
        return rotations(raw, kinds(raw, num_layers, FULL_EVERY, where), BASES, where)

    def check(self, raw: RawJson, where: str) -> None:
        """`kinds` and `windows` have checked what the file says of windows."""
