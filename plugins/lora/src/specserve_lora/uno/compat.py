"""What uno provides and declares about the features of other plugins.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

from specserve.api import Compatible, Conflict

OTHER_DRAFTERS = Compatible("drafts are compared and the one that promises most is verified")
ADAPTERS = Compatible("a request's own adapter computes its tokens, and the draft adapter the random ones behind them")
HYBRIDS = Compatible("draft tokens are computed by the backend that serves generated tokens")
BACKENDS = Compatible("what it computes looks like the verification of a chain, which every backend serves")
PLANNERS = Compatible("every draft token carries its survival estimate, and any limit is kept")
PROCESSORS = Compatible("processed requests are drafted with their processors, along the path of each draft")
CACHES = Compatible("what it computes lies in no block that the prefix cache knows")
OBSERVERS = Compatible("it reads committed tokens and changes nothing that an observer sees")
ROUTES = Compatible("no route reaches it")

RANKS = Conflict("its passes are computed by one process, and the others have a part of every layer")
