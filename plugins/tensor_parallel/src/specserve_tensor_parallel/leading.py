"""Rank 0's part: it has the requests, starts the other ranks and says what they do."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from specserve.api import ConfigError, parse_bytes
from specserve_tensor_parallel.adapters import NumberedAdapters, cut_adapter, sent
from specserve_tensor_parallel.group import join
from specserve_tensor_parallel.messages import (
    ChooseAttention,
    Failed,
    FreeAdapter,
    HaveBlocks,
    Load,
    Loaded,
    PackAdapter,
    encode,
    next_report,
)
from specserve_tensor_parallel.part import RankPart
from specserve_tensor_parallel.processes import RankLostError, Ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve.api import AdapterWeights, AttentionNeeds, EngineConfig, KernelSet
    from specserve_tensor_parallel.group import Group
    from specserve_tensor_parallel.messages import ToFirst
    from specserve_tensor_parallel.processes import Rank

DEVICES = "CUDA_VISIBLE_DEVICES"


class LeadingPart(RankPart):
    def __init__(self, config: EngineConfig, ranks: int) -> None:
        shares_memory = config.device == "cpu"
        super().__init__(0, ranks, 1 / ranks if shares_memory else 1.0)
        self.device = config.device
        self.others = Ranks(environments(config.device, ranks))
        self.adapters = NumberedAdapters()

    def configure(self, config: EngineConfig) -> EngineConfig:
        config = share_of(config, self.ranks)
        for rank in self.others.all:
            order = Load(rank.number, self.ranks, config, self.memory_share, self.rendezvous)
            with losses_stop_the_start():
                self.others.send_to(rank, encode(order))
        return config

    @property
    def rendezvous(self) -> str:
        """A file that no rank has used before."""
        return str(self.others.folder / "rendezvous")

    def agree_on_attention(self, needs: AttentionNeeds) -> AttentionNeeds:
        with losses_stop_the_start():
            self.others.send(ChooseAttention(needs))
        return needs

    def agree_on_blocks(self, count: int) -> int:
        """The fewest that any rank has the memory for."""
        for rank in self.others.all:
            report = self.report_of(rank)
            assert isinstance(report, HaveBlocks), report
            count = min(count, report.count)
        with losses_stop_the_start():
            self.others.send(HaveBlocks(count))
            self.group_or_none = self.joined()
        self.others.fate.on_loss.append(self.group.abort)
        return count

    def joined(self) -> Group:
        try:
            return join(self.rendezvous, self.rank, self.ranks, self.device)
        except RuntimeError as error:  # what torch raises
            raise self.others.lost_by(error, "the ranks do not find each other") from None

    def check_arithmetic(self, own: tuple[str, str]) -> None:
        """Once this rank has loaded. ConfigError where another rank has chosen other kernels or attention."""
        for rank in self.others.all:
            report = self.report_of(rank)
            assert isinstance(report, Loaded), report
            if report.arithmetic != own:
                raise ConfigError(
                    f"tensor_parallel: rank {rank.number} computes with {' and '.join(report.arithmetic)}, rank 0 with "
                    f"{' and '.join(own)}: kernels and attention must come from installed plugins, and load everywhere."
                )

    def report_of(self, rank: Rank) -> ToFirst:
        """Its next one. Raises ConfigError where it could not load its part."""
        try:
            report = next_report(rank.connection)
        except (EOFError, OSError) as error:
            raise ConfigError(str(self.others.lost_by(error, f"rank {rank.number} does not answer"))) from None
        if isinstance(report, Failed):
            raise ConfigError(f"tensor_parallel: rank {rank.number} cannot load its part of the model: {report.reason}")
        return report

    def pack_adapter(self, kernels: KernelSet, weights: AdapterWeights) -> Any:
        number = self.adapters.reserve()
        for rank in self.others.all:
            own = cut_adapter(weights, self.all_shares[rank.number])
            self.others.send_to(rank, encode(PackAdapter(number, sent(own))))
        packed = kernels.pack_adapter(cut_adapter(weights, self.shares))
        self.adapters.numbers[id(packed)] = number
        return packed

    def free_adapter(self, packed: object) -> None:
        """Once the engine is done, or a rank lost, there is nothing to free."""
        number = self.adapters.forget(packed)
        if not self.others.fate.is_over:
            self.others.send(FreeAdapter(number))

    def close(self) -> None:
        self.others.close()


@contextmanager
def losses_stop_the_start() -> Iterator[None]:
    """A rank that ends while the model is loaded is told as what else can be wrong with a start."""
    try:
        yield
    except RankLostError as error:
        raise ConfigError(str(error)) from None


def share_of(config: EngineConfig, ranks: int) -> EngineConfig:
    """A rank's share of the threads, and of the memory for keys and values where a number of bytes is configured."""
    threads = max((config.threads or 1) // ranks, 1)
    memory = None if config.kv_memory is None else str(parse_bytes(config.kv_memory) // ranks)
    return msgspec.structs.replace(config, threads=threads, kv_memory=memory)


def environments(device: str, ranks: int) -> list[dict[str, str]]:
    """Of ranks 1 and up: each sees its own device, the one after that of the rank before."""
    if device != "cuda":
        return [{} for _ in range(1, ranks)]
    import torch

    count = torch.cuda.device_count()
    if count < ranks:
        raise ConfigError(
            f"tensor_parallel.ranks: each rank has a CUDA device of its own; got {ranks} ranks, and torch sees {count} "
            "devices. Choose fewer ranks."
        )
    visible = os.environ.get(DEVICES)
    names = visible.split(",") if visible else [str(index) for index in range(count)]
    return [{DEVICES: names[rank]} for rank in range(1, ranks)]
