"""The process of a rank above 0: loads its part of the model, then does what rank 0 says, in order.

Run as a module with the number of a file descriptor, its end of a socket pair, and the folder where ranks find each
other. It owns no request and decides nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import msgspec

from specserve.api import InProcessPlugin, PluginDeclaration, SpecserveError, hookimpl
from specserve.api.models import LowRankDelta
from specserve.api.ranks import load_worker, receive
from specserve_tensor_parallel.adapters import plan_of, received
from specserve_tensor_parallel.following import FollowingPart
from specserve_tensor_parallel.messages import (
    AddDeltas,
    Compute,
    Failed,
    FreeAdapter,
    Load,
    Loaded,
    MoveTokens,
    PackAdapter,
    encode,
    next_order,
)
from specserve_tensor_parallel.options import TensorParallelOptions

if TYPE_CHECKING:
    from specserve.api.ranks import Worker
    from specserve_tensor_parallel.messages import FromFirst

GRACE_SECONDS = 5.0
"""For the thread that hears of the same end to put things in order."""
NAME, FEATURE = "tensor_parallel", "parallel.tensor"


class FollowingPlugin:
    """Gives the part to the loader of this process."""

    def __init__(self, part: FollowingPart) -> None:
        self.part = part

    @hookimpl
    def plugin_options(self) -> type[TensorParallelOptions]:
        return TensorParallelOptions

    @hookimpl
    def make_model_part(self) -> FollowingPart:
        return self.part


def main() -> int:
    descriptor, folder = sys.argv[1:]
    threading.Thread(target=end_with_input, args=(folder,), daemon=True).start()
    connection: Connection[bytes, bytes] = Connection(int(descriptor))
    order = next_order(connection)
    assert isinstance(order, Load), order
    part = FollowingPart(order, connection)
    plugin = InProcessPlugin(FollowingPlugin(part), PluginDeclaration(name=NAME, provides={FEATURE: "a rank"}))
    try:
        worker = load_worker(order.config, {NAME: plugin})
    except SpecserveError as error:
        print(error, file=sys.stderr)  # where rank 0 has no time to read it, it is among the last lines
        connection.send_bytes(encode(Failed(str(error))))
        return 1
    connection.send_bytes(encode(Loaded(worker.arithmetic)))
    loaded = LoadedRank(worker)
    for postponed in part.postponed:
        loaded.obey(postponed)
    while True:
        loaded.obey(next_order(connection))


class LoadedRank:
    """Does what rank 0 says."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.adapters: dict[int, Any] = {}
        """By number, as the kernels read them."""

    def obey(self, order: FromFirst) -> None:
        model = self.worker.model
        match order:
            case Compute():
                self.compute(order)
            case MoveTokens(source, target):
                self.worker.cache.move(source, target)
            case PackAdapter(number, weights):
                self.adapters[number] = model.kernels.pack_adapter(received(weights, model.device))
            case FreeAdapter(number):
                del self.adapters[number]
            case AddDeltas(projections):
                for name in projections:
                    model.projections[name].add_delta(LowRankDelta(name, model.kernels))
            case _:
                raise AssertionError(f"not an order of a loaded rank: {order}")

    def compute(self, order: Compute) -> None:
        batch = receive(order.batch, self.worker.builder)
        if order.segments:
            plan = plan_of(order.segments, order.lora_rank, self.adapters)
            batch = msgspec.structs.replace(batch, lora=plan)
        self.worker.runner.forward(batch)


def end_with_input(folder: str) -> None:
    """Standard input ends when rank 0 does without ending the others: nothing that this process does then has a
    reader, and nobody else removes the folder."""
    while os.read(0, 1):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def run() -> int:
    """The exit code; an error is told on standard error, of which rank 0 repeats the last lines."""
    try:
        return main()
    except EOFError:  # rank 0 has ended, and with it the input
        threading.Event().wait(GRACE_SECONDS)
        return 0
    except BaseException:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    code = run()
    sys.stderr.flush()
    os._exit(code)  # threads of collectives may wait for ranks that have ended
