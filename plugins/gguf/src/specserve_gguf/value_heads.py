"""The value heads of gated delta nets in the order that llama.cpp has them in. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ValueHeads(NamedTuple):
    """Several share a key head. A file has the first one of every key head, then the second ones, and so on; a model in
    Hugging Face format has those of a key head together."""

    key_heads: int
    heads: int
    size: int
    """Rows or columns of each."""
    before: int = 0
    """Rows of others that precede them."""

    def order(self) -> NDArray[np.int64]:
        """Which row or column of the file is each one of the model."""
        heads = np.arange(self.heads).reshape(-1, self.key_heads).T.reshape(-1, 1)
        own = heads * self.size + np.arange(self.size)
        return np.concatenate((np.arange(self.before), self.before + own.flatten()))
