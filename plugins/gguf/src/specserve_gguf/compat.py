"""What gguf declares. Only adding models, it works with every plugin.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

ADDED = "models in GGUF files"
