"""What lora declares about the features of other plugins.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

from specserve.api import Compatible

CHAINS = Compatible("a request's drafts are verified under its own adapter, with the bits of plain decoding")
TREES = Compatible("every node of a tree is a row of its request, under its request's adapter")
HYBRIDS = Compatible("adapters change projections, and attention between them may be any backend's")
BACKENDS = Compatible("keys and values reach any backend with the adapter's part added")
PLANNERS = Compatible("draft rows join their request's segment, however many there are")
PROCESSORS = Compatible("logits come from the adapted model before a processor sees them")
OBSERVERS = Compatible("an observer sees each request's committed tokens and its adapter")
ROUTES = Compatible(
    "its routes are /v1/load_lora_adapter and /v1/unload_lora_adapter; no other route changes an adapter"
)
