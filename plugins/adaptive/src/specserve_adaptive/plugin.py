"""adaptive's hooks: the planner of the configured mode, and the metrics of its decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ConfigError, hookimpl
from specserve_adaptive.cost_cache import kept_costs
from specserve_adaptive.observer import PlannerObserver
from specserve_adaptive.options import AdaptiveOptions
from specserve_adaptive.ranked import RankedPlanner
from specserve_adaptive.static import StaticPlanner
from specserve_adaptive.step_costs import StepCosts
from specserve_adaptive.tiers import TierPlanner

if TYPE_CHECKING:
    from specserve.api import EngineConfig, PlanningRuntime

MEASURE_SECONDS = 2.0


class AdaptivePlugin:
    """Its planner and its observer share what was decided. There is one instance per engine."""

    def __init__(self) -> None:
        self.planner: RankedPlanner | StaticPlanner | TierPlanner | None = None
        """Set by `make_draft_planner`, which start-up calls before `make_observer`."""

    @hookimpl
    def plugin_options(self) -> type[AdaptiveOptions]:
        return AdaptiveOptions

    @hookimpl
    def make_draft_planner(
        self, config: EngineConfig, options: AdaptiveOptions, runtime: PlanningRuntime
    ) -> RankedPlanner | StaticPlanner | TierPlanner:
        self.planner = make_planner(config.max_draft_tokens, options, runtime)
        return self.planner

    @hookimpl
    def make_observer(self) -> PlannerObserver:
        assert self.planner is not None
        return PlannerObserver(self.planner)


def make_planner(
    max_draft_tokens: int, options: AdaptiveOptions, runtime: PlanningRuntime
) -> RankedPlanner | StaticPlanner | TierPlanner:
    """Raises ConfigError for options that exceed the engine's limit of draft tokens, `max_draft_tokens`."""
    if options.mode == "static":
        assert options.tokens is not None
        check_width("tokens", options.tokens, max_draft_tokens)
        return StaticPlanner(options.tokens)
    if options.mode == "tiers":
        settings = options.tiers
        for candidates in settings.tables.values():
            check_width("candidates", max(candidates), max_draft_tokens)
        return TierPlanner(settings, max_draft_tokens)
    if not runtime.drafters:  # nothing to plan for, and nothing to measure
        return StaticPlanner(0)
    costs = StepCosts(*kept_costs(options.cost_cache, runtime, MEASURE_SECONDS))
    return RankedPlanner(max_draft_tokens, costs, options.objective or "fair", runtime.drafters)


def check_width(name: str, width: int, max_draft_tokens: int) -> None:
    if width > max_draft_tokens:
        raise ConfigError(
            f"adaptive.{name}: {width} draft tokens are more than the engine's limit of {max_draft_tokens}. "
            f"Lower them, or raise --max-draft-tokens."
        )
