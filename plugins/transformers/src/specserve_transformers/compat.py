"""What transformers declares about the features of other plugins.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

from specserve.api import Compatible, Conflict

ADDED = "causal language models whose class in transformers calls its attention interface"
CHAINS = Compatible(
    "rows are those of any model; a row's bits are the same among others and alone, or start-up refuses"
)
TREES = Compatible("positions are the engine's own, and attention is that of its backend, with its masks")
MODELS = Compatible("stand-alone draft models share the vocabulary alone; draft heads refuse such a target")
ADAPTERS = Compatible("linear maps are projections by the names that PEFT has for them; experts take no adapter")
HYBRIDS = Compatible("attention is a call of the backend that serves the step")
BACKENDS = Compatible("attention is a call of the backend that serves the step")
PLANNERS = Compatible("a step's rows and their costs are measured as with any model")
PROCESSORS = Compatible("logits are handed on in float32, as by any model")
OBSERVERS = Compatible("nothing that an observer sees depends on who computed the layers")
CACHES = Compatible("keys and values lie in the engine's blocks, a token's at its own place")
ROUTES = Compatible("it serves no route and sees no request")
DIVIDED = Conflict("its layers are computed as wholes and cannot be divided among processes")
