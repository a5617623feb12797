"""What `bench model` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve_bench.output.table import console, print_table
from specserve_bench.roofline.bounds import bound, free_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_bench.roofline.bounds import Bound
    from specserve_bench.roofline.examine import Examined
    from specserve_bench.roofline.machine import Machine

GIGA, MEGA = 1e9, 1e6


class Found(NamedTuple):
    model: str
    examined: Examined
    machine: Machine
    context: int
    concurrency: Sequence[int]

    def bounds(self) -> list[Bound]:
        return [bound(self.examined.work, self.machine, count, 1, self.context) for count in self.concurrency]

    def free_draft_tokens(self, num_requests: int) -> int:
        return free_rows(self.examined.work, self.machine, num_requests, self.context) - 1


def print_found(found: Found) -> None:
    work, machine = found.examined.work, found.machine
    sizes = [
        ("parameters", f"{found.examined.parameters / MEGA:.1f} million"),
        ("weights read by a step", f"{work.weight_bytes / MEGA:.1f} MB"),
        ("keys and values of a token", f"{work.kv_bytes / 1000:.1f} kB"),
        ("operations of a row", f"{work.step_flops(1, found.context) / MEGA:.1f} million"),
        (f"memory, {machine.threads} threads", f"{machine.bytes_per_second / GIGA:.1f} GB/s"),
        (f"products in {found.examined.dtype}", f"{machine.flops / GIGA:.1f} Gflop/s"),
    ]
    print_table(f"{found.model} on this machine", ("", ""), sizes)
    rows = [row(found, each) for each in found.bounds()]
    columns = ("requests", "memory ms", "arithmetic ms", "bound by", "tokens/s at most", "free draft tokens")
    print_table(f"a step at {found.context} tokens of context", columns, rows)
    console().print(
        "Tokens per second without drafts. Free draft tokens: as many of each request are verified in the time that "
        "memory takes anyway. Real steps are slower than both bounds.",
        soft_wrap=True,
    )


def row(found: Found, each: Bound) -> tuple[str, ...]:
    return (
        str(each.num_requests),
        f"{each.memory_seconds * 1000:.3f}",
        f"{each.arithmetic_seconds * 1000:.3f}",
        each.by,
        f"{each.tokens_per_second:.1f}",
        str(found.free_draft_tokens(each.num_requests)),
    )


def to_json(found: Found) -> str:
    steps = [
        {
            **each._asdict(),
            "bound_by": each.by,
            "tokens_per_second": each.tokens_per_second,
            "free_draft_tokens": found.free_draft_tokens(each.num_requests),
        }
        for each in found.bounds()
    ]
    report = {
        "model": found.model,
        "parameters": found.examined.parameters,
        "dtype": found.examined.dtype,
        "context": found.context,
        "work": found.examined.work._asdict(),
        "machine": found.machine._asdict(),
        "steps": steps,
    }
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
