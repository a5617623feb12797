"""What hybrid_attn declares about the features of other plugins.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

from specserve.api import Compatible

CHAINS = Compatible("a position's backend depends on the position alone, and drafts are verified as they are decoded")
TREES = Compatible("the backend of generated positions masks siblings, or gets chains")
BACKENDS = Compatible("any backend may serve any phase that its stated capabilities allow")
PLANNERS = Compatible("the number of verified draft tokens changes no position's backend")
PROCESSORS = Compatible("logits are changed after attention")
OBSERVERS = Compatible("nothing that an observer sees depends on who computed attention")
ROUTES = Compatible("a position's backend does not depend on the route that a request came by")
