"""What the bytes of a block mean, by the types of ggml: as integers, scales and offsets.

Sources: ggml-common.h and ggml-quants.c of ggml. Raw blocks are [n, bytes] uint8.
"""

from __future__ import annotations

from specserve_gguf.blocks.of_32 import FORMS as OF_32
from specserve_gguf.blocks.of_256 import FORMS as OF_256
from specserve_gguf.blocks.with_table import FORMS as WITH_TABLE

FORMS = OF_32 | OF_256 | WITH_TABLE
"""By the names of the types."""
