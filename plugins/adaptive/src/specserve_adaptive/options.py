"""The options of adaptive, and the checks that involve several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specserve.api import ConfigError
from specserve_adaptive.cost_cache import AUTO
from specserve_adaptive.tier_settings import TIER_SETTINGS, Candidates, TierSettings, check_candidates, read_settings

Rate = Annotated[float, Meta(gt=0.0, le=1.0)]


class AdaptiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`--set adaptive.mode=ranked --set adaptive.objective=fair`."""

    mode: Literal["ranked", "tiers", "static"] = "ranked"
    """ranked: in every step the draft tokens that pay. tiers: one of a few fixed widths, by how many draft tokens were
    accepted lately. static: always `tokens`."""
    objective: Literal["fair", "throughput", "latency"] | None = None
    """Of ranked; None is fair. fair: the sum of the logarithms of the requests' speeds; throughput: the tokens per
    second of all together; latency: the speed of the slowest request."""
    tokens: Annotated[int, Meta(ge=0)] | None = None
    """Of static: draft tokens per request and step."""
    candidates: Candidates | None = None
    """Of tiers: draft tokens per request and step to choose from, ascending; None is [1, 3, 7, 15]."""
    ema_alpha: Rate | None = None
    """Of tiers: weight of a step in the moving average of accepted draft tokens; None is 0.2."""
    warm_up: Annotated[int, Meta(ge=0)] | None = None
    """Of tiers: steps before the first change; None is 10."""
    interval: Annotated[int, Meta(ge=1)] | None = None
    """Of tiers: steps between two changes; None is 5."""
    up_hysteresis: float | None = None
    """Of tiers: accepted draft tokens beyond the rule before a wider one is taken; None is 0."""
    down_hysteresis: float | None = None
    """Of tiers: the same before a narrower one is taken, as a rule negative; None is -0.25."""
    config: str | None = None
    """Of tiers: a TOML or JSON file with these settings, and with candidates by batch size."""
    cost_cache: str = AUTO
    """Where what steps take is kept across starts: a directory; auto is specserve/step-costs below $XDG_CACHE_HOME or
    ~/.cache; none measures at every start."""

    def __post_init__(self) -> None:
        for name, mode in (("objective", "ranked"), ("tokens", "static"), *((n, "tiers") for n in OF_TIERS)):
            if getattr(self, name) is not None and self.mode != mode:
                raise ConfigError(
                    f"{name} belongs to mode={mode}; got {name} = {getattr(self, name)!r} with mode = {self.mode!r}. "
                    f"Set adaptive.mode={mode}, or leave {name} out."
                )
        if self.mode == "static" and self.tokens is None:
            raise ConfigError(
                "mode=static needs tokens, the draft tokens per request and step: --set adaptive.tokens=3."
            )
        given = [name for name in TIER_SETTINGS if getattr(self, name) is not None]
        if self.config is not None and given:
            raise ConfigError(
                f"config and {', '.join(given)} contradict each other: the file {self.config!r} states all settings of "
                "tiers. Leave one of them out."
            )
        if self.candidates is not None:
            check_candidates("candidates", self.candidates)

    @property
    def tiers(self) -> TierSettings:
        """Raises ConfigError for a file that cannot be read or states something else."""
        if self.config is not None:
            return read_settings(Path(self.config))
        given = {name: getattr(self, name) for name in TIER_SETTINGS}
        return TierSettings(**{name: value for name, value in given.items() if value is not None})


OF_TIERS = ("config", *TIER_SETTINGS)
