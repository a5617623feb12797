"""Engines that draft with the target and a draft adapter, such adapters, and what they draft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_workbench.testing.engines import make_engine, set_planner, verify_everything

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from specserve.engine.engine import Engine


def uno_engine(
    target: Path, adapter: Path | str, *, beside: Sequence[str] = (), planner: Any = None, **options: Any
) -> Engine:
    """All drafts are verified unless a planner is given. `beside`: plugins that are enabled after uno."""
    settings = options.pop("settings", {})
    tables = {"uno": {"adapter": str(adapter), **settings}} | options.pop("plugin_options", {})
    plugins = options.pop("plugins", ("uno", *beside))
    engine = make_engine(target, plugins=plugins, plugin_options=tables, **options).engine
    if planner is None:
        return verify_everything(engine)
    set_planner(engine, planner)
    return engine


class Witness(FixedWidthPlanner):
    """Verifies everything, and remembers drafts by request and number of committed tokens."""

    def __init__(self) -> None:
        super().__init__(32)
        self.drafts: dict[tuple[str, int], tuple[int, ...]] = {}
        self.survival: dict[tuple[str, int], tuple[float, ...]] = {}

    def choose(self, requests, budget, base_rows):
        for request in requests:
            if request.draft is not None:
                key = request.id, len(request.tokens)
                self.drafts[key], self.survival[key] = request.draft.tokens, request.draft.survival
        return super().choose(requests, budget, base_rows)
