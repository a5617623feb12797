"""What planners get from the engine: the drafters' names, and costs that are measured on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.engine.measure_costs import measure_costs
from specserve.processor import processor_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.engine.measure_costs import CostProbe
    from specserve.protocols import CostTable


class EnginePlanningRuntime:
    """`specserve.protocols.PlanningRuntime`."""

    def __init__(
        self,
        probe: CostProbe,
        drafters: tuple[str, ...],
        configuration: Mapping[str, str],
    ) -> None:
        self.probe, self.drafters = probe, drafters
        self.identity: Mapping[str, str] = {**machine(probe.runner.model.device), **configuration}

    def measure_costs(self, seconds: float) -> CostTable:
        return measure_costs(self.probe, seconds)


def machine(device: torch.device) -> dict[str, str]:
    """The hardware and the versions that steps' times depend on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()
    return {"device": name, "threads": str(torch.get_num_threads()), "torch": str(torch.__version__)}
