"""What grammar declares about the features of other plugins.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

from specserve.api import Compatible

OTHER_DRAFTERS = Compatible(
    "drafts are cut where the grammar forbids a token, and each row has the mask of its own path"
)
BACKENDS = Compatible("it reads tokens and changes logits, and attention sees neither")
PLANNERS = Compatible("forced tokens are a draft like any other, and any limit is kept")
PROCESSORS = Compatible("a mask removes tokens, so that it may come before or after another processor")
OBSERVERS = Compatible("an observer sees committed tokens, which the grammar allows")
ROUTES = Compatible("it adds no route")
