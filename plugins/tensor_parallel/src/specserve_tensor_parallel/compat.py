"""What tensor_parallel provides and declares about the features of others.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import Compatible, Conflict, Provides

if TYPE_CHECKING:
    from specserve.api import EngineConfig

NAME = "tensor_parallel"


def one_rank(config: EngineConfig) -> str | None:
    alone = str(config.plugin_options.get(NAME, {}).get("ranks", "")) == "1"
    return "one rank is the plain engine; --set tensor_parallel.ranks=2" if alone else None


DIVIDED = Provides("several processes compute each layer of the target, each its heads and columns", one_rank)

CHAINS = Compatible("a draft's tokens are rows of the step that every rank computes; rank 0 verifies them")
TREES = Compatible("every rank gets the draft's tree with the batch, and moves what was accepted in its own cache")
MODELS = Compatible("a draft model lies on rank 0 alone and reads hidden states, which are whole there")
ADAPTERS = Compatible("each rank has its rows or columns of an adapter, and adds its part before the ranks' sum")
HYBRIDS = Compatible("every rank has the same backends for its own heads, chosen by the needs of rank 0")
BACKENDS = Compatible("a backend attends to a rank's own heads; it must be installed, as it is loaded on every rank")
PLANNERS = Compatible("a planner decides on rank 0; the steps that it times are those of all ranks")
PROCESSORS = Compatible("logits are whole on rank 0, where a processor changes them")
CACHES = Compatible("rank 0 says which blocks are known, and every rank has its part of them")
OBSERVERS = Compatible("an observer sees the steps of rank 0, which has all requests")
ROUTES = Compatible("routes are served by rank 0, whose engine they see")

GRAPHS = Conflict("the ranks' sums come in between, and no recorded step has them")
