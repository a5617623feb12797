"""Twins of the kernels of layers without attention: see `twins`. A row, or a token, at a time."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from specserve.kernels.torch_kernels import TorchKernels

TORCH = TorchKernels()
EPS_OF_LENGTH = 1e-6


def gate_kernel(a):
    size, num_gates = a["size"], a["num_gates"]
    assert size == num_gates * a["per_gate"]
    x, gates = a["x"].view(-1, size), a["gates"].view(-1, num_gates)
    a["out"].view(x.shape).copy_(TORCH.gate(x, gates))


# --- short convolutions -------------------------------------------------------------------------------------------


def inputs_of(a):
    rows = a["rows"].view(-1, 3, a["CHANNELS"])
    return rows[:, 0] * rows[:, 2], rows[:, 1]


def keep_product_kernel(a):
    product, _ = inputs_of(a)
    real = a["own"] >= 0
    a["kept"].index_copy_(0, a["own"][real], product[real])


def short_conv_kernel(a):
    product, c = inputs_of(a)
    reach, weight = a["REACH"], a["weight"]
    total = product.float() * weight[-1]
    for distance in range(reach):
        before, exists = (a[name].view(len(c), -1)[:, distance] for name in ("before", "exists"))
        part = a["kept"].index_select(0, before).float() * weight[reach - 1 - distance]
        total += part.masked_fill_(~exists[:, None], 0.0)
    if a["HAS_BIAS"]:
        total += a["bias"]
    a["out"].copy_(c * total.to(c.dtype))


# --- gated delta nets -----------------------------------------------------------------------------------------------


def tokens_of(a):
    """The tokens that there are: their places, the slots of the states behind them, and their trails."""
    table = a["tokens"].view(-1, a["TAPS"] + 3)[: int(a["count"][0])]
    return table.split_with_sizes((a["TAPS"], 2, 1), 1)


def input_at(a, place):
    """All numbers of a token that a state needs; of one in a window those of the convolution."""
    if place >= 0:
        return a["rows"].view(-1, a["ROW"])[place, : a["TRAIL"]].float()
    trail = -1 - place
    if trail < a["NUM_TRAILS"]:
        return a["trails"].view(-1, a["TRAIL"])[trail].float()
    slot, at = divmod(trail - a["NUM_TRAILS"], a["REACH"])
    begin = a["WINDOW"] + at * a["CHANNELS"]
    return a["states"].view(-1, a["STATE"])[slot, begin : begin + a["CHANNELS"]]


def delta_gates_kernel(a):
    heads, channels = a["VALUE_HEADS"], a["CHANNELS"]
    places, _, trails = tokens_of(a)
    out = a["gates"].view(-1, 2, heads)
    for token, (place, trail) in enumerate(zip(places[:, 0].tolist(), trails[:, 0].tolist(), strict=True)):
        b_and_a = input_at(a, place)[channels:]
        if trail >= 0:
            a["trails"].view(-1, a["TRAIL"])[trail, channels:] = b_and_a.to(a["trails"].dtype)
        b, c = b_and_a.view(2, heads)
        out[token, 0] = (a["rate"] * F.softplus(c + a["dt_bias"])).exp()
        out[token, 1] = b.sigmoid().to(a["trails"].dtype).float()


def delta_conv_kernel(a):
    channels, window = a["CHANNELS"], a["WINDOW"]
    states, mixed = a["states"].view(-1, a["STATE"]), a["mixed"].view(-1, channels)
    for token, (places, slots, trail) in enumerate(zip(*(part.tolist() for part in tokens_of(a)), strict=True)):
        total = torch.zeros(channels)
        for distance, place in enumerate(places):
            x = input_at(a, place)[:channels].clone()
            total += x * a["taps"][distance]
            for slot in slots:
                if slot >= 0 and distance < a["TAPS"] - 1:
                    states[slot, window + distance * channels : window + (distance + 1) * channels] = x
            if distance == 0 and trail[0] >= 0:
                a["trails"].view(-1, a["TRAIL"])[trail[0], :channels] = x.to(a["trails"].dtype)
        mixed[token] = F.silu(total).to(mixed.dtype)


def delta_recurrence_kernel(a):
    key_heads, heads, dk, dv = a["KEY_HEADS"], a["VALUE_HEADS"], a["KEY_DIM"], a["VALUE_DIM"]
    states, gates = a["states"].view(-1, a["STATE"]), a["gates"].view(-1, 2, heads)
    tokens = a["tokens"].view(-1, a["TAPS"] + 3)
    size = heads * dk * dv
    for begin, count, source in a["runs"].view(-1, 3).tolist():
        state = root = states[source, :size].view(heads, dk, dv)
        for operation in a["operations"][begin : begin + count].tolist():
            token, restarts = divmod(operation, 2)
            row, first, second = tokens[token][[0, a["TAPS"], a["TAPS"] + 1]].tolist()
            of_token = a["mixed"].view(-1, 2 * key_heads * dk + heads * dv)[token].float()
            q, k, v = of_token.split_with_sizes((key_heads * dk, key_heads * dk, heads * dv))
            q, k = (each.view(key_heads, dk).repeat_interleave(heads // key_heads, 0) for each in (q, k))
            q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + EPS_OF_LENGTH) for x in (q, k))
            decay, beta = gates[token]
            state = (root if restarts else state) * decay[:, None, None]
            delta = (v.view(heads, dv) - (state * k[:, :, None]).sum(1)) * beta[:, None]
            state = state + k[:, :, None] * delta[:, None, :]
            if first >= 0:
                root = state
            if row >= 0:
                read = (state * (q * a["q_scale"])[:, :, None]).sum(1)
                a["out"].view(-1, heads * dv)[row] = read.flatten().to(a["out"].dtype)
            for slot in (first, second):
                if slot >= 0:
                    states[slot, :size] = state.flatten()


def gated_norm_kernel(a):
    heads, dv = a["VALUE_HEADS"], a["VALUE_DIM"]
    x = a["x"].view(-1, heads, dv)
    for row, out in zip(a["rows"].view(-1, a["ROW"]), x, strict=True):
        wide, z = out.float(), row[a["GATE"] :].float().view(heads, dv)
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + a["eps"])
        out.copy_((a["weight"] * normed.to(x.dtype).float() * F.silu(z)).to(x.dtype))
