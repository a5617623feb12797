"""The kernels around the matrix products: norm, rotation, activation, and the writing of keys and values. Row by row.

One launch configuration each, whatever the number of rows: a row's bits depend on its own values alone. They round
where the torch versions do. Positions and slots are parts of one tensor, whose addresses follow the number of rows:
kernels are not specialised on them. Imports Triton.
"""
# mypy: disable-error-code="untyped-decorator"
# (triton ships no types)

from __future__ import annotations

import triton
import triton.language as tl

from specserve_cuda.launch import Launch, power_of_2

SILU_BLOCK = 1024


@triton.jit
def normed(raw: tl.tensor, scale: tl.tensor, gain: tl.tensor) -> tl.tensor:
    """Rounded before the gain multiplies, as the checkpoints were trained; a gain in float32 multiplies before."""
    values = raw.to(tl.float32) * scale
    if gain.dtype == raw.dtype:
        values = values.to(raw.dtype).to(tl.float32)
    return values * gain.to(tl.float32)


@triton.jit
def rotated(raw: tl.tensor, partner: tl.tensor, cos: tl.tensor, sin: tl.tensor) -> tl.tensor:
    """x * cos + rotate_half(x) * sin in float32, rounded once; the sign is in sin."""
    return (raw.to(tl.float32) * cos + partner.to(tl.float32) * sin).to(raw.dtype)


@triton.jit
def finite(x: tl.tensor) -> tl.tensor:
    """In float32, 0 for NaN and infinities: comparisons with NaN are false."""
    x = x.to(tl.float32)
    return tl.where(tl.abs(x) < float("inf"), x, 0.0)


@triton.jit
def store_key(cache: tl.tensor, offset: tl.tensor, key: tl.tensor, limit: tl.tensor, mask: tl.tensor) -> None:
    """As `KVCache.write` does it: finite, and clamped."""
    clamped = tl.minimum(tl.maximum(finite(key), -limit), limit)
    tl.store(cache + offset, clamped.to(cache.dtype.element_ty), mask=mask)


@triton.jit
def store_value(cache: tl.tensor, offset: tl.tensor, value: tl.tensor, mask: tl.tensor) -> None:
    tl.store(cache + offset, finite(value).to(cache.dtype.element_ty), mask=mask)


@triton.jit
def add_and_norm_kernel(
    x: tl.tensor,
    added: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    size: tl.tensor,
    out_stride: tl.tensor,
    eps: tl.tensor,
    HAS_ADDED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """x += added, then out = RMS norm of x. One program per row; the tree of the sum is that of BLOCK."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    raw = tl.load(x + row * size + columns, mask=inside, other=0.0)
    if HAS_ADDED:
        more = tl.load(added + row * size + columns, mask=inside, other=0.0)
        raw = (raw.to(tl.float32) + more.to(tl.float32)).to(raw.dtype)
        tl.store(x + row * size + columns, raw, mask=inside)
    values = raw.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / size + eps)
    gain = tl.load(weight + columns, mask=inside, other=0.0)
    tl.store(out + row * out_stride + columns, normed(raw, scale, gain).to(out.dtype.element_ty), mask=inside)


@triton.jit
def rotary_kernel(
    x: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    out: tl.tensor,
    heads: tl.tensor,
    head_dim: tl.tensor,
    rotary_dim: tl.tensor,
    row_stride: tl.tensor,
    head_stride: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """One program per head of a row; cos and sin have a row for each row of x."""
    program = tl.program_id(0).to(tl.int64)
    row, head = program // heads, program % heads
    columns = tl.arange(0, BLOCK)
    inside, in_rotary = columns < head_dim, columns < rotary_dim
    partners = (columns + rotary_dim // 2) % rotary_dim
    source = x + row * row_stride + head * head_stride
    raw = tl.load(source + columns, mask=inside, other=0.0)
    partner = tl.load(source + partners, mask=in_rotary, other=0.0)
    c = tl.load(cos + row * rotary_dim + columns, mask=in_rotary, other=1.0)
    s = tl.load(sin + row * rotary_dim + columns, mask=in_rotary, other=0.0)
    tl.store(out + program * head_dim + columns, tl.where(in_rotary, rotated(raw, partner, c, s), raw), mask=inside)


@triton.jit(do_not_specialize_on_alignment=["positions", "slots"])
def rotate_and_write_kernel(
    qkv: tl.tensor,
    q_gain: tl.tensor,
    k_gain: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    positions: tl.tensor,
    slots: tl.tensor,
    q: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    key_limit: tl.tensor,
    eps: tl.tensor,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    HAS_NORM: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One program per head of a row of qkv: norms and rotates q to `q` and k to the cache, and copies v to the cache.

    qkv: [T, HEADS + 2 * KV_HEADS, HEAD_DIM]; cos, sin: [positions, ROTARY_DIM]; positions, slots: [T] int64,
    the slots of padding negative."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.arange(0, BLOCK)
    inside = columns < HEAD_DIM
    source = qkv + (row * (HEADS + 2 * KV_HEADS) + head) * HEAD_DIM
    raw = tl.load(source + columns, mask=inside, other=0.0)
    slot = tl.load(slots + row).to(tl.int64)
    written = inside & (slot >= 0)  # not for padding
    if head >= HEADS + KV_HEADS:
        store_value(value_cache, (slot * KV_HEADS + head - HEADS - KV_HEADS) * HEAD_DIM + columns, raw, written)
    else:
        in_rotary = columns < ROTARY_DIM
        partners = (columns + ROTARY_DIM // 2) % ROTARY_DIM
        partner = tl.load(source + partners, mask=in_rotary, other=0.0)
        if HAS_NORM:
            values = raw.to(tl.float32)
            scale = tl.rsqrt(tl.sum(values * values, axis=0) / HEAD_DIM + eps)
            gain = k_gain
            if head < HEADS:
                gain = q_gain
            dtype = raw.dtype
            raw = normed(raw, scale, tl.load(gain + columns, mask=inside, other=0.0)).to(dtype)
            partner = normed(partner, scale, tl.load(gain + partners, mask=in_rotary, other=0.0)).to(dtype)
        turn = tl.load(positions + row) * ROTARY_DIM + columns
        c, s = tl.load(cos + turn, mask=in_rotary, other=1.0), tl.load(sin + turn, mask=in_rotary, other=0.0)
        turned = tl.where(in_rotary, rotated(raw, partner, c, s), raw)
        if head < HEADS:
            tl.store(q + (row * HEADS + head) * HEAD_DIM + columns, turned, mask=inside)
        else:
            store_key(key_cache, (slot * KV_HEADS + head - HEADS) * HEAD_DIM + columns, turned, key_limit, written)


@triton.jit(do_not_specialize_on_alignment=["slots"])
def write_kernel(
    keys: tl.tensor,
    values: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    slots: tl.tensor,
    key_row_stride: tl.tensor,
    key_head_stride: tl.tensor,
    value_row_stride: tl.tensor,
    value_head_stride: tl.tensor,
    key_limit: tl.tensor,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One program per head of a row: `KVCache.write` in one launch."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.arange(0, BLOCK)
    inside = columns < HEAD_DIM
    slot = tl.load(slots + row)
    offset, written = (slot * KV_HEADS + head) * HEAD_DIM + columns, inside & (slot >= 0)
    k = tl.load(keys + row * key_row_stride + head * key_head_stride + columns, mask=inside, other=0.0)
    v = tl.load(values + row * value_row_stride + head * value_head_stride + columns, mask=inside, other=0.0)
    store_key(key_cache, offset, k, key_limit, written)
    store_value(value_cache, offset, v, written)


@triton.jit
def store_activated(
    gate_up: tl.tensor, out: tl.tensor, size: tl.tensor, GELU: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """out = x / (1 + e^-v) * up, for the gate x: v is x in SiLU, and 2 sqrt(2 / pi) (x + 0.044715 x^3) in GELU by its
    tanh approximation. What is activated is rounded to the dtype before the product, as two torch calls would."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    source = gate_up + row * 2 * size + columns
    raw = tl.load(source, mask=inside, other=0.0)
    up = tl.load(source + size, mask=inside, other=0.0).to(tl.float32)
    gate = raw.to(tl.float32)
    exponent = gate
    if GELU:
        exponent = gate * (1.5957691 + 0.071354816 * gate * gate)
    activated = (gate / (1.0 + tl.exp(-exponent))).to(raw.dtype).to(tl.float32)
    tl.store(out + row * size + columns, (activated * up).to(out.dtype.element_ty), mask=inside)


@triton.jit
def silu_and_multiply_kernel(gate_up: tl.tensor, out: tl.tensor, size: tl.tensor, BLOCK: tl.constexpr) -> None:
    store_activated(gate_up, out, size, False, BLOCK)


@triton.jit
def gelu_and_multiply_kernel(gate_up: tl.tensor, out: tl.tensor, size: tl.tensor, BLOCK: tl.constexpr) -> None:
    store_activated(gate_up, out, size, True, BLOCK)


def norm_launch(size: int, has_added: bool) -> Launch:
    """Of rows of `size` numbers; the launch options follow from the row's width alone."""
    block = power_of_2(size)
    num_warps = min(16, max(1, block // 512))
    return Launch(add_and_norm_kernel, {"HAS_ADDED": has_added, "BLOCK": block}, num_warps=num_warps)


def silu_launch() -> Launch:
    return Launch(silu_and_multiply_kernel, {"BLOCK": SILU_BLOCK}, num_warps=4)


def gelu_launch() -> Launch:
    return Launch(gelu_and_multiply_kernel, {"BLOCK": SILU_BLOCK}, num_warps=4)
