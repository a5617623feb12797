"""adaptive's hooks: the planner of the configured mode, and the metrics of its decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ConfigError
from specserve.hookspecs import hookimpl
from specserve.speculation.costs import StepCosts
from specserve.speculation.planning import VerifyAll
from specserve_adaptive.options import AdaptiveOptions
from specserve_adaptive.ranked import RankedPlanner
from specserve_adaptive.tiers import TierPlanner

if TYPE_CHECKING:
    from specserve.config import EngineConfig
    from specserve.protocols import DraftPlanner, PlanningRuntime


class AdaptivePlugin:
    @hookimpl
    def plugin_options(self) -> type[AdaptiveOptions]:
        return AdaptiveOptions

    @hookimpl
    def make_draft_planner(
        self, config: EngineConfig, options: AdaptiveOptions, runtime: PlanningRuntime
    ) -> DraftPlanner:
        most = config.max_draft_tokens
        if options.mode == "static":
            assert options.tokens is not None
            check_width("tokens", options.tokens, most)
            return VerifyAll(options.tokens)
        if options.mode == "tiers":
            settings = options.tiers
            for candidates in settings.tables.values():
                check_width("candidates", max(candidates), most)
            return TierPlanner(settings, most)
        return RankedPlanner(most, StepCosts(*runtime.measure_costs(2.0)), options.objective or "fair")


def check_width(name: str, width: int, most: int) -> None:
    if width > most:
        raise ConfigError(
            f"adaptive.{name}: {width} draft tokens are more than the engine's limit of {most}. "
            f"Lower them, or raise --max-draft-tokens."
        )
