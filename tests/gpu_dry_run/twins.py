"""What each Triton kernel computes, in torch: called with the arguments of its launch, by name, in place of it.

A row's bits do not depend on the other rows of a launch: products go in tiles of one height, as in the core's torch
kernels, and attention is summed in float64. Nothing here is a reference for accuracy; tests/engine has those.
"""

from __future__ import annotations

import ctypes
import math
import struct
from array import array

import mixer_twins
import torch
from cpu_as_cuda import unseen
from cuda_graphs import launched

from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.tiled import in_tiles
from specserve.sampling.cutoffs import apply_cutoffs
from specserve.sampling.edits import TorchRow
from specserve.sampling.noise import gumbel_noise
from specserve.sampling.seeds import MASK
from specserve.types import SamplingParams
from specserve_cuda.kernels.sampling import KEEP_BITS, KEEP_ONLY, OP_FIELDS, PENALIZE, ROW_FIELDS, SHIFT

TORCH = TorchKernels()
ROWS = 32
ITEMS = 16


def linear_kernel(a):
    rows, width, depth = a["num_rows"], a["width"], a["depth"]
    weight = a["weight"].as_strided((width, depth), (a["weight_stride"], 1))
    bias = a["bias"] if a["HAS_BIAS"] else None
    x = a["x"].view(rows, depth)
    a["out"].view(rows, width).copy_(in_tiles(ROWS, lambda tile: TORCH.linear(tile, weight, bias), x))


def add_and_norm_kernel(a):
    size = a["size"]
    x, out = a["x"].view(-1, size), a["out"]
    if a["HAS_ADDED"]:
        x.add_(a["added"].view(-1, size))
    rows = out.as_strided((len(x), size), (a["out_stride"], 1))
    rows.copy_(in_tiles(ROWS, lambda tile: TORCH.rms_norm(tile, a["weight"], a["eps"]), x))


def rotary_kernel(a):
    rotary_dim = a["rotary_dim"]
    cos, sin = (a[name].view(-1, 1, rotary_dim) for name in ("cos", "sin"))
    x = a["x"].as_strided((len(cos), a["heads"], a["head_dim"]), (a["row_stride"], a["head_stride"], 1))
    a["out"].copy_(in_tiles(ROWS, TORCH.rotary, x, cos, sin))


def rotate_and_write_kernel(a):
    heads, kv_heads, dim = a["HEADS"], a["KV_HEADS"], a["HEAD_DIM"]
    positions, eps = a["positions"], a["eps"]
    q, k, v = a["qkv"].view(len(positions), -1, dim).split_with_sizes((heads, kv_heads, kv_heads), 1)
    if a["HAS_NORM"]:
        q, k = (
            in_tiles(ROWS, lambda tile, gain=gain: TORCH.rms_norm(tile.contiguous(), gain, eps), each)
            for each, gain in ((q, a["q_gain"]), (k, a["k_gain"]))
        )
    cos, sin = a["cos"][positions].unflatten(1, (1, -1)), a["sin"][positions].unflatten(1, (1, -1))
    cos, sin = (t.view(len(positions), 1, -1) for t in (cos, sin))
    q, k = (in_tiles(ROWS, TORCH.rotary, each, cos, sin) for each in (q, k))
    a["q"].view(q.shape).copy_(q)
    write_kernel({**a, "keys": k, "values": v})


def write_kernel(a):
    real = a["slots"] >= 0
    keys, values, slots = a["keys"][real], a["values"][real], a["slots"][real]
    limit = a["key_limit"]
    finite_keys, finite_values = (torch.nan_to_num(t, nan=0.0, posinf=0.0, neginf=0.0) for t in (keys, values))
    a["key_cache"].index_copy_(0, slots, finite_keys.clamp_(-limit, limit).to(a["key_cache"].dtype))
    a["value_cache"].index_copy_(0, slots, finite_values.to(a["value_cache"].dtype))


def silu_and_multiply_kernel(a):
    gate_up = a["gate_up"].view(-1, 2 * a["size"])
    a["out"].view(len(gate_up), -1).copy_(in_tiles(ROWS, TORCH.silu_and_multiply, gate_up))


def gelu_and_multiply_kernel(a):
    gate_up = a["gate_up"].view(-1, 2 * a["size"])
    a["out"].view(len(gate_up), -1).copy_(in_tiles(ROWS, TORCH.gelu_and_multiply, gate_up))


# --- adapters -------------------------------------------------------------------------------------------------


def at_address(address, shape, dtype):
    count = shape[0] * shape[1]
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def segments_of(a):
    """First row, number of rows, part, and that part's fields, for every tile."""
    table = a["table"].view(-1, a["PARTS"], a["FIELDS"]).tolist()
    for begin, count, adapter in a["tiles"].tolist():
        for part, fields in enumerate(table[adapter]):
            if fields[2] and count:
                yield slice(begin, begin + count), part, fields


def down_kernel(a):
    x = a["x"].view(a["num_rows"], a["depth"])
    reduced = a["reduced"].view(-1, a["num_rows"], a["most_ranks"])
    assert a["most_ranks"] % 16 == 0, "whole blocks of ranks: otherwise a neighbour's rank would choose the binary"
    for rows, part, (down, _, rank, *_) in segments_of(a):
        weight = at_address(down, (rank, a["depth"]), x.dtype)
        reduced[part, rows, :rank] = in_tiles(ROWS, lambda tile, w=weight: TORCH.linear(tile, w, None), x[rows])


def up_kernel(a):
    reduced = a["reduced"].view(-1, a["num_rows"], a["most_ranks"])
    out = a["out"].view(a["num_rows"], -1)
    for rows, part, (_, up, rank, first, width, _) in segments_of(a):
        weight, low = at_address(up, (width, rank), out.dtype), reduced[part, rows, :rank]
        out[rows, first : first + width] += in_tiles(ROWS, lambda tile, w=weight: TORCH.linear(tile, w, None), low)


# --- sampling -------------------------------------------------------------------------------------------------


def float_of(bits):
    return struct.unpack("d", struct.pack("q", bits))[0]


def edit_kernel(a):
    vocab_size, numbers = a["vocab_size"], a["numbers"].tolist()
    edited = a["edited"].view(-1, vocab_size)
    for row, target, first, count in a["rows"].view(-1, 4).tolist():
        x = edited[target]
        x.copy_(a["logits"].view(-1, vocab_size)[row])
        for at in range(first, first + count * OP_FIELDS, OP_FIELDS):
            kind, begin, size, repetition, presence, frequency, values, _ = numbers[at : at + OP_FIELDS]
            ids = array("q", numbers[begin : begin + size])
            floats = array("f", map(float_of, numbers[values : values + size]))
            row_edits = TorchRow(x)
            if kind == KEEP_BITS:
                words = array("q", numbers[begin : begin + size]).tobytes()
                row_edits.keep_bits(array("I", words[: 4 * -(-vocab_size // 32)]))
                continue
            if kind == PENALIZE:
                row_edits.penalize(ids, floats, *map(float_of, (repetition, presence, frequency)))
            elif kind == SHIFT:
                row_edits.shift(ids, floats)
            else:
                (row_edits.keep_only if kind == KEEP_ONLY else row_edits.forbid)(ids)


def sample_kernel(a):
    vocab_size = a["vocab_size"]
    rows = a["rows"].view(-1, ROW_FIELDS).tolist()
    for i, (row, edit, key, temperature, top_k, top_p, log_min_p, _) in enumerate(rows):
        source = a["logits"].view(-1, vocab_size)[row] if edit < 0 else a["edited"].view(-1, vocab_size)[edit]
        x = source.masked_fill(source.isnan(), float("-inf"))
        if float_of(temperature) > 0:
            min_p = math.exp(float_of(log_min_p))
            x = apply_cutoffs(
                x / torch.tensor(float_of(temperature)), SamplingParams(top_k=top_k, top_p=float_of(top_p), min_p=min_p)
            )
            x += gumbel_noise([key & MASK], vocab_size, x.device)[0]
        a["tokens"][i] = -1 if edit >= 0 and x.max() == float("-inf") else x.max(-1).indices
        if a["KEEPS_SCORES"]:
            a["scores"].view(-1, vocab_size)[i] = x


# --- paged attention ------------------------------------------------------------------------------------------


def attend_kernel(a):
    """Every work item at once would need all keys at once: a few items at a time, all heads."""
    numbers = torch.arange(int(a["counts"][0]))
    for some in numbers.split(ITEMS):
        attend_items(a, some)


def attend_items(a, some):
    group, size, split, block_m = a["GROUP_SIZE"], a["BLOCK_SIZE"], a["SPLIT_SIZE"], a["BLOCK_M"]
    heads, dim = a["KV_HEADS"], a["HEAD_DIM"]
    index, number = a["items"][some, :2].long().unbind(1)
    first_row, rows, length, prefix, first_block, path = a["tiles"][index, :6].long().T[..., None]
    key = number[:, None] * split + torch.arange(split)
    valid, in_tree = key < length + rows - 1, key >= prefix
    block = a["block_ids"][torch.where(valid & ~in_tree, first_block + key // size, 0)]
    paged = block * size + key % size
    slots = torch.where(in_tree, a["paths"].flatten()[torch.where(valid & in_tree, path + key - prefix, 0)], paged)
    slots = torch.where(valid, slots, 0)
    k, v = (a[name][slots].double().transpose(1, 2) for name in ("key_cache", "value_cache"))
    query = torch.arange(block_m)
    own = query // group < rows
    row = torch.where(own, first_row + query // group, 0)
    q = a["q"].view(-1, heads, group, dim)[row, :, query % group].double() * own[..., None, None]
    ends = (length + query // group)[..., None]
    at = key[:, None]
    seen = valid[:, None] & (at < ends) & (at >= ends - a["window"]) & (at >= a["FIRST_KEY"])
    scores = q.transpose(1, 2) @ k.mT * a["scale"]
    if a["HAS_CAP"]:
        scores = a["soft_cap"] * scores.tanh()
    scores = scores.masked_fill(~seen[:, None], float("-inf"))
    most = scores.amax(-1)
    weights = torch.exp2(scores - most.masked_fill(most == float("-inf"), 0.0)[..., None])
    a["partial_max"][some], a["partial_sum"][some] = most.float(), weights.sum(-1).float()
    a["partial_out"][some, ..., :dim] = (weights @ v).float()


def merge_kernel(a):
    group, split, dim = a["GROUP_SIZE"], a["SPLIT_SIZE"], a["HEAD_DIM"]
    for first_row, rows, length, _, _, _, first_item, _ in a["tiles"].tolist():
        if rows == 0:  # padding
            continue
        items = slice(first_item, first_item + (length + rows - 2) // split + 1)
        states = (a[f"partial_{name}"][items].double() for name in ("max", "sum", "out"))
        most, total, out = (state[:, :, : rows * group] for state in states)
        highest = most.amax(0)
        scale = torch.exp2(most - highest.masked_fill(highest == float("-inf"), 0.0))
        sums = (total * scale).sum(0)
        if a["HAS_SINKS"]:
            sinks = a["sinks"].double().view(-1, 1, group).expand(-1, rows, -1).flatten(1)
            sums = sums + torch.exp2(sinks - highest)
        result = (out[..., :dim] * scale[..., None]).sum(0) / sums[..., None]
        rows_first = result.unflatten(1, (rows, group)).transpose(0, 1).flatten(1, 2)
        a["out"][first_row : first_row + rows] = rows_first.to(a["out"].dtype)


def as_the_device(name, twin):
    def run(arguments):
        with unseen(), torch._C.DisableTorchFunctionSubclass():  # a subclass costs more than the arithmetic does
            twin(arguments)

    return lambda arguments: launched(name, run, arguments)


FOUND = dict(globals()) | vars(mixer_twins)
TWINS = {name: as_the_device(name, twin) for name, twin in FOUND.items() if name.endswith("_kernel")}
