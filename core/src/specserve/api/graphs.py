"""What runs steps, eagerly or from recorded graphs, and what it is made of."""

from specserve.metrics import EngineMetrics
from specserve.models.runner import Runner, RunnerParts, StepParts

__all__ = ["EngineMetrics", "Runner", "RunnerParts", "StepParts"]
