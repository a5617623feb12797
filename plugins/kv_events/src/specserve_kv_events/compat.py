"""What kv_events declares about the features of other plugins.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

from specserve.api import Compatible

BACKENDS = Compatible("it reads token ids and hashes and never keys; the hash contains who computed a block")
DRAFTS = Compatible("the prefix cache knows committed tokens only, whoever drafted them")
DRAFT_MODELS = Compatible("a draft model's layers lie in the target's blocks, and one event tells of both")
PROCESSORS = Compatible("logits are changed before a token is committed, and only committed tokens are told")
ADAPTERS = Compatible("an event names the adapter of its blocks")
OBSERVERS = Compatible("it reads what the engine tells and changes nothing that an observer sees")
PLANNERS = Compatible("how much is drafted changes neither tokens nor blocks that the cache knows")
ROUTES = Compatible("its route is /kv_event_sources, and no other route changes what is published")
