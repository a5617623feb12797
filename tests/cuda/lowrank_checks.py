"""Low-rank additions of a kernel set against those in plain products, on any device."""

from __future__ import annotations

import torch

from specserve.batch.lora_plan import Segment
from specserve.kernels.lowrank import add_to_all_rows
from specserve.protocols import LowRankPart

ROUNDING = {torch.float32: 0.0, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Sums of whole numbers are exact in float32; halves round them, here and there at the same places."""


def adapters_of(dtype, names, ins, outs, device="cpu"):
    """Random adapters of mixed ranks; the last one leaves the projection as it is."""

    def part(rank, outs):
        width = outs.stop - outs.start
        down, up = (torch.randint(-2, 3, size).to(dtype).to(device) for size in ((rank, ins), (width, rank)))
        return LowRankPart(down, up, outs)

    ranks = {"a": (1, 5), "b": (16, 33), "c": (40,)}
    middle = outs - 20  # parts of two widths; both begin and end within a block of columns, none at its edge
    spans = slice(0, middle), slice(middle + 3, outs)
    weights = {name: {"p": tuple(map(part, ranks[name], spans))} for name in names}
    return {**weights, "none": {"other": (part(4, slice(0, outs)),)}}


def check_segments_get_what_their_adapters_add(kernels, dtype, device="cpu"):
    weights = adapters_of(dtype, "abc", ins=70, outs=90, device=device)
    packed = {name: kernels.pack_adapter(own) for name, own in weights.items()}
    cuts = [(0, 1, "a"), (1, 20, "b"), (23, 40, "c"), (40, 41, "none"), (41, 75, "a")]
    x = torch.randint(-1, 2, (80, 70)).to(dtype).to(device)
    base = torch.randint(-9, 9, (80, 96)).to(dtype).to(device)
    got, expected = base.clone(), base.clone()
    kernels.add_low_rank("p", x, got, [Segment(b, e, packed[name]) for b, e, name in cuts])
    segments = [Segment(b, e, weights[name]) for b, e, name in cuts]
    add_to_all_rows(torch.nn.functional.linear, "p", x, expected, segments)
    torch.testing.assert_close(got, expected, rtol=ROUNDING[dtype], atol=0.0)
    assert torch.equal(got[20:23], base[20:23])
    assert torch.equal(got[75:], base[75:])
    for begin, end, name in cuts:  # alone, from another place, beside adapters of no other rank
        alone = base[begin:end].clone()
        kernels.add_low_rank("p", x[begin:end], alone, [Segment(0, end - begin, packed[name])])
        assert torch.equal(alone, got[begin:end]), name
