"""Where graphs replays steps. Imports nothing heavy: `specserve plugins` reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import Provides

if TYPE_CHECKING:
    from specserve.api import EngineConfig


def why_not(config: EngineConfig) -> str | None:
    return "it replays steps with --graphs full or piecewise, not none" if config.graph_mode == "none" else None


REPLAY = Provides("steps are recorded once, with everything around attention or with it, and replayed", why_not)
