"""What transformers declares. Only adding models, it works with every plugin that it does not name here.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

from specserve.api import Conflict

ADDED = "causal language models whose class in transformers calls its attention interface"
DIVIDED = Conflict("its layers are computed as wholes and cannot be divided among processes")
