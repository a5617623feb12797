"""The prefix cache as the scheduler sees it: which known blocks a request starts with, and which it publishes.

A block is known by a hash chain over the namespace, the arithmetic and all tokens up to its end. Only committed
tokens are ever hashed. Who holds which block is `BlockPool`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.admitted import assign
from specserve.kv.blocks import chain_hash, mixed_hash, root_hash

if TYPE_CHECKING:
    from specserve.batch.request import Request
    from specserve.engine.cache_journal import NoJournal
    from specserve.kv.blocks import BlockPool
    from specserve.protocols import Arithmetic


class PrefixCache:
    """Matches nothing and publishes nothing unless `enabled`."""

    def __init__(
        self, pool: BlockPool, block_size: int, arithmetic: Arithmetic, journal: NoJournal, *, enabled: bool
    ) -> None:
        self.pool, self.block_size, self.arithmetic, self.enabled = pool, block_size, arithmetic, enabled
        self.journal = journal

    def match(self, request: Request) -> list[int]:
        """Known blocks that hold the request's first tokens; never its last token, whose logits must be computed."""
        if not self.enabled or request.params.prompt_logprobs is not None:
            return []
        full = (len(request.tokens) - 1) // self.block_size
        self.extend_hashes(request, full)
        return self.pool.match(request.hashes[:full])

    def publish(self, request: Request) -> None:
        """Make the request's blocks known whose tokens are all computed and committed."""
        if not self.enabled:
            return
        full = request.computed // self.block_size
        self.extend_hashes(request, full)
        for i in range(request.num_published, full):
            if self.pool.publish(request.blocks[i], request.hashes[i]):
                self.journal.stored(request, i)
        assign(request, "num_published", full)

    def reset(self) -> None:
        """Forget all blocks that no running request holds."""
        self.pool.drop_idle()
        if not self.pool.by_hash:
            self.journal.cleared()

    def extend_hashes(self, request: Request, count: int) -> None:
        """Hash the request's blocks up to the first `count`."""
        size, hashes = self.block_size, request.hashes
        while len(hashes) < count:
            begin = len(hashes) * size
            parent = hashes[-1] if hashes else root_hash(request.namespace, self.arithmetic.prompt)
            num_prompt = max(0, request.prompt_len - begin)
            if num_prompt < size and self.arithmetic.generated != self.arithmetic.prompt:
                parent = mixed_hash(parent, num_prompt, self.arithmetic.generated)
            list.append(hashes, chain_hash(parent, request.tokens[begin : begin + size]))
