"""Draft heads in the public checkpoint formats: what a directory holds, its numbers, and its tensors by one name.

Everything that can be wrong is found from config.json and the files' headers, before any weight is read. Knows nothing
about how a head computes.
"""

from specserve_eagle.checkpoints.config import read_head_config
from specserve_eagle.checkpoints.detect import kind_of
from specserve_eagle.checkpoints.head_config import HeadConfig
from specserve_eagle.checkpoints.tensors import HeadCheckpoint, open_head
from specserve_eagle.checkpoints.vocabulary import draft_ids

__all__ = ["HeadCheckpoint", "HeadConfig", "draft_ids", "kind_of", "open_head", "read_head_config"]
