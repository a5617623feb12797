"""What ngram declares about the features of other plugins.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

from specserve.api import Compatible

OTHER_DRAFTERS = Compatible("drafts are compared and the one that promises most is verified")
BACKENDS = Compatible("it reads tokens and never keys; branches go only to a backend that can mask them")
PLANNERS = Compatible("every node of a draft carries its survival estimate, and any limit is kept")
PROCESSORS = Compatible("it learns from the committed tokens, whatever changed the logits before")
OBSERVERS = Compatible("it reads committed tokens and changes nothing that an observer sees")
ROUTES = Compatible("its routes begin with /v1/ngram, and no other route changes a corpus")
