"""What holds where hybrid_attn meets a feature. Imports nothing heavy: the commands that explain read it."""

from specserve.declare import Compatible

CHAINS = Compatible("a position's backend follows from the position alone, so guesses are verified as they are decoded")
TREES = Compatible("the backend of generated positions masks siblings; one that cannot is given chains, and says so")
BACKENDS = Compatible("any backend may serve any phase that its stated capabilities allow")
PLANNERS = Compatible("how many guesses are verified changes no position's backend")
PROCESSORS = Compatible("logits are changed after attention, which knows nothing of them")
OBSERVERS = Compatible("nothing that an observer sees depends on who computed attention")
