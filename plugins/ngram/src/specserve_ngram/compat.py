"""What holds where ngram meets a feature. Imports nothing heavy: the commands that explain read it.

ngram's routes lie under /v1/ngram and its metrics begin with specserve_ngram_, and its observer is never told
anything: no other plugin can meet them, so they are not features that others must declare.
"""

from specserve.declare import Compatible

OTHER_DRAFTERS = Compatible("drafts are compared and the one that promises most is verified")
BACKENDS = Compatible("it reads tokens and never keys; branches go only to a backend that can mask them")
PLANNERS = Compatible("every node of a draft carries its survival estimate, and any limit is kept")
PROCESSORS = Compatible("it learns from the tokens that were chosen, whatever changed the logits before")
OBSERVERS = Compatible("it reads committed tokens and changes nothing that an observer sees")
