"""How figures of acceptance are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specserve_eagle.training.evaluate import Acceptance


def print_acceptance(acceptance: Acceptance, temperature: float) -> None:
    how = "greedy" if temperature == 0.0 else f"temperature {temperature:g}"
    print(f"{acceptance.figure}, {how}, {acceptance.num_drafts} drafts of {len(acceptance.survival)} tokens")
    print("position  accepted  of those whose earlier tokens were")
    for position, (survival, rate) in enumerate(zip(acceptance.survival, acceptance.rates, strict=True), 1):
        print(f"{position:8}  {survival:8.3f}  {rate:.3f}")
    print(f"mean acceptance length {acceptance.mean_length:.3f}")
