"""The part of a rank above 0: where ranks agree, it hears from rank 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_tensor_parallel.group import join
from specserve_tensor_parallel.messages import ChooseAttention, FreeAdapter, HaveBlocks, PackAdapter, encode, next_order
from specserve_tensor_parallel.part import RankPart

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from specserve.api import AttentionNeeds
    from specserve_tensor_parallel.messages import FromFirst, Load


class FollowingPart(RankPart):
    def __init__(self, order: Load, connection: Connection[bytes, bytes]) -> None:
        super().__init__(order.rank, order.ranks, order.memory_share)
        self.order, self.connection = order, connection
        self.postponed: list[PackAdapter | FreeAdapter] = []
        """Adapters that rank 0 loaded at start-up, before this rank had loaded."""

    def next_order(self) -> FromFirst:
        while isinstance(order := next_order(self.connection), PackAdapter | FreeAdapter):
            self.postponed.append(order)
        return order

    def agree_on_attention(self, needs: AttentionNeeds) -> AttentionNeeds:
        order = self.next_order()
        assert isinstance(order, ChooseAttention), order
        return order.needs

    def agree_on_blocks(self, count: int) -> int:
        self.connection.send_bytes(encode(HaveBlocks(count)))
        order = self.next_order()
        assert isinstance(order, HaveBlocks), order
        self.group_or_none = join(self.order.rendezvous, self.rank, self.ranks, self.order.config.device)
        return order.count
