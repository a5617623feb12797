"""What adaptive declares about the features of other plugins, and where it serves.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import Compatible, Provides

if TYPE_CHECKING:
    from specserve.api import EngineConfig


def why_not(config: EngineConfig) -> str | None:
    for name in ("draft_tokens", "max_draft_batch"):
        value = getattr(config, name)
        if value is not None:
            return f"--{name.replace('_', '-')} {value} fixes what it decides in every step"
    return None


PLANS = Provides("drafts and verifies in every step what pays, by measured times and learned acceptance", why_not)
CHAINS = Compatible("it chooses how much of a draft is verified, which changes the speed and no token")
TREES = Compatible("a node is verified with its ancestors, so that every choice is a tree")
ADAPTERS = Compatible("what it learns of a request is that request's own, whatever adapter it runs under")
HYBRIDS = Compatible("the number of verified draft tokens changes no position's backend")
BACKENDS = Compatible("what steps take is measured with the backend that serves")
PROCESSORS = Compatible("it reads which draft tokens were right, whatever changed the logits before")
OBSERVERS = Compatible("it reads committed tokens and changes nothing that an observer sees")
ROUTES = Compatible("no route reaches it")
