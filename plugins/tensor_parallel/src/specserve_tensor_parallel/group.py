"""The ranks' collectives: every rank's tensor, in the order of ranks.

gloo on CPUs, NCCL on CUDA devices. Tensors are only moved: what is added is added by the caller, in one order, so that
no backend's choice of an algorithm changes a bit.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import FileStore, GatherOptions, ProcessGroupGloo  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from torch import Tensor

TIMEOUT = timedelta(seconds=120)
"""For one collective. Ranks that have ended are noticed at once, by their connections."""
JOINING = timedelta(seconds=30)
"""Until all ranks, which have loaded by then, have joined."""
HOST = "127.0.0.1"


class Group:
    """`backend`: a process group of torch.distributed. All ranks call the same methods in the same order."""

    def __init__(self, backend: Any, rank: int, ranks: int) -> None:
        self.backend, self.rank, self.ranks = backend, rank, ranks

    def gather(self, x: Tensor) -> list[Tensor]:
        """x: of the same shape on every rank. Those of all ranks."""
        x = x.contiguous()
        found = [torch.empty_like(x) for _ in range(self.ranks)]
        self.backend.allgather([found], [x]).wait()
        return found

    def gather_to_first(self, x: Tensor) -> list[Tensor]:
        """Those of all ranks on rank 0; empty on the others."""
        x = x.contiguous()
        found = [torch.empty_like(x) for _ in range(0 if self.rank else self.ranks)]
        options = GatherOptions()
        options.rootRank = 0
        self.backend.gather([found] if found else [], [x], options).wait()
        return found

    def abort(self) -> None:
        """From any thread: collectives that wait for another rank raise."""
        self.backend.abort()


def join(path: str, rank: int, ranks: int, device: str) -> Group:
    """Blocks until all ranks have joined. path: a file that all of them see and that none has used before."""
    store = FileStore(path, ranks)
    store.set_timeout(JOINING)
    make = make_nccl if device == "cuda" else make_gloo
    return Group(make(store, rank, ranks), rank, ranks)


def make_gloo(store: FileStore, rank: int, ranks: int) -> Any:
    options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [ProcessGroupGloo.create_device(hostname=HOST)]
    options._timeout = TIMEOUT
    return ProcessGroupGloo(store, rank, ranks, options)


def make_nccl(store: FileStore, rank: int, ranks: int) -> Any:
    from torch.distributed import ProcessGroupNCCL  # not in builds of torch for CPUs

    options = ProcessGroupNCCL.Options()
    options._timeout = TIMEOUT
    return ProcessGroupNCCL(store, rank, ranks, options)
