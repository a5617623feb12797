"""What eagle provides and declares about the features of other plugins.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import Compatible, Provides

if TYPE_CHECKING:
    from specserve.api import EngineConfig


def why_no_trees(config: EngineConfig) -> str | None:
    topk = str(config.plugin_options.get("eagle", {}).get("topk", 1))
    return "eagle.topk is 1, which drafts chains; --set eagle.topk=4 drafts trees" if topk == "1" else None


TREES = Provides("trees, with eagle.topk above 1", why_no_trees)
OTHER_DRAFTERS = Compatible("drafts are compared and the one that promises most is verified")
ADAPTERS = Compatible("the draft model reads hidden states of the adapted target and has no adapter itself")
HYBRIDS = Compatible("its layers have the backend for decoding, or read the target's keys, and change none")
BACKENDS = Compatible("its layers are served by any backend whose stated capabilities suffice")
PLANNERS = Compatible("every draft token carries its survival estimate, and any limit is kept")
PROCESSORS = Compatible("processed requests are drafted with their processors, along the path of each draft")
OBSERVERS = Compatible("it reads committed tokens and changes nothing that an observer sees")
ROUTES = Compatible("no route reaches it")
