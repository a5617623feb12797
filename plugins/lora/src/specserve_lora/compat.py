"""What holds where lora meets a feature. Imports nothing heavy: the commands that explain read it.

lora's routes are /v1/load_lora_adapter and /v1/unload_lora_adapter and its metrics begin with specserve_lora_: no other
plugin can meet them, so they are not features that others must declare.
"""

from specserve.declare import Compatible

CHAINS = Compatible("guesses of a request are verified under its own adapter, in the bits of plain decoding")
TREES = Compatible("every node of a tree is a row of its request, under its request's adapter")
HYBRIDS = Compatible("adapters change projections and attention lies between them, whichever backend computes it")
BACKENDS = Compatible("keys and values reach any backend with the adapter's part added")
PLANNERS = Compatible("rows of guesses join their request's segment, however many there are")
PROCESSORS = Compatible("logits come from the adapted model before a processor sees them")
OBSERVERS = Compatible("what was committed is the adapter's own text, and its namespace says whose")
