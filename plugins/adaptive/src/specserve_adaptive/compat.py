"""What adaptive declares about the features of other plugins.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

from specserve.declare import Compatible

CHAINS = Compatible("it chooses how much of a draft is verified, which changes the speed and no token")
TREES = Compatible("a node is verified with its ancestors, so that every choice is a tree")
ADAPTERS = Compatible("what it learns of a request is that request's own, whatever adapter it runs under")
HYBRIDS = Compatible("the number of verified draft tokens changes no position's backend")
BACKENDS = Compatible("what steps take is measured with the backend that serves")
PROCESSORS = Compatible("it reads which draft tokens were right, whatever changed the logits before")
OBSERVERS = Compatible("it reads committed tokens and changes nothing that an observer sees")
ROUTES = Compatible("no route reaches it")
