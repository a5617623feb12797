"""The kernels of a gated delta net: gates and convolution of every token, the recurrence, and the gated norm.

A token of a step is a row, or one that the step before had drafted and that was accepted, of which the trail has what a
state needs. `specserve_cuda.kernels.delta_net_tables` says where the inputs of each lie. Letters: C channels of the
convolution, V value heads, G key heads, dk and dv their sizes. Imports Triton.
"""
# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# (triton ships no types)

from __future__ import annotations

import triton
import triton.language as tl

EPS_OF_LENGTH = tl.constexpr(1e-6)


@triton.jit
def load_input(
    rows, states, trails, place, columns, inside,
    ROW: tl.constexpr, TRAIL: tl.constexpr, STATE: tl.constexpr, WINDOW: tl.constexpr,
    CHANNELS: tl.constexpr, REACH: tl.constexpr, NUM_TRAILS: tl.constexpr,
):  # fmt: skip
    """Numbers of one token in float32. place: of a row, or -1 - i for the i-th trail, and behind all trails for the
    i-th token of a state's window."""
    other = -1 - place
    at = tl.maximum(other - NUM_TRAILS, 0)
    of_row = tl.load(rows + place * ROW + columns, mask=inside & (place >= 0), other=0.0).to(tl.float32)
    in_trail = (other >= 0) & (other < NUM_TRAILS)
    of_trail = tl.load(trails + other * TRAIL + columns, mask=inside & in_trail, other=0.0).to(tl.float32)
    source = states + (at // REACH) * STATE + WINDOW + (at % REACH) * CHANNELS + columns
    of_window = tl.load(source, mask=inside & (other >= NUM_TRAILS), other=0.0)
    return tl.where(place >= 0, of_row, tl.where(in_trail, of_trail, of_window))


@triton.jit(do_not_specialize_on_alignment=["tokens", "count"])
def delta_gates_kernel(
    rows, states, trails, dt_bias, rate, tokens, count, gates,
    ROW: tl.constexpr, TRAIL: tl.constexpr, STATE: tl.constexpr, WINDOW: tl.constexpr, CHANNELS: tl.constexpr,
    TAPS: tl.constexpr, REACH: tl.constexpr, NUM_TRAILS: tl.constexpr, VALUE_HEADS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """One program per token. gates: [tokens, 2 V] float32, the decay and beta of each head. Draft tokens leave b and a
    in their trail."""
    token = tl.program_id(0).to(tl.int64)
    if token < tl.load(count):
        heads = tl.arange(0, BLOCK)
        inside = heads < VALUE_HEADS
        entry = tokens + token * (TAPS + 3)
        place, trail = tl.load(entry), tl.load(entry + TAPS + 2)
        b = load_input(
            rows, states, trails, place, CHANNELS + heads, inside, ROW, TRAIL, STATE, WINDOW, CHANNELS, REACH,
            NUM_TRAILS,
        )  # fmt: skip
        a = load_input(
            rows, states, trails, place, CHANNELS + VALUE_HEADS + heads, inside, ROW, TRAIL, STATE, WINDOW, CHANNELS,
            REACH, NUM_TRAILS,
        )  # fmt: skip
        kept = trails + trail * TRAIL + CHANNELS + heads
        tl.store(kept, b.to(trails.dtype.element_ty), mask=inside & (trail >= 0))
        tl.store(kept + VALUE_HEADS, a.to(trails.dtype.element_ty), mask=inside & (trail >= 0))
        x = a + tl.load(dt_bias + heads, mask=inside, other=0.0)
        # log(1 + small), by its series where that sum would lose digits
        small = tl.exp(-tl.abs(x))
        series = small * (1.0 - small * (0.5 - small * (0.33333334 - small * 0.25)))
        log = tl.where(small < 0.015625, series, tl.log(1.0 + small))
        decay = tl.exp(tl.load(rate + heads, mask=inside, other=0.0) * (tl.maximum(x, 0.0) + log))
        beta = (1.0 / (1.0 + tl.exp(-b))).to(trails.dtype.element_ty).to(tl.float32)
        tl.store(gates + token * 2 * VALUE_HEADS + heads, decay, mask=inside)
        tl.store(gates + token * 2 * VALUE_HEADS + VALUE_HEADS + heads, beta, mask=inside)


@triton.jit(do_not_specialize_on_alignment=["tokens", "count"])
def delta_conv_kernel(
    rows, states, trails, taps, tokens, count, mixed,
    ROW: tl.constexpr, TRAIL: tl.constexpr, STATE: tl.constexpr, WINDOW: tl.constexpr, CHANNELS: tl.constexpr,
    TAPS: tl.constexpr, REACH: tl.constexpr, NUM_TRAILS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """One program per token and block of channels. taps: [TAPS, C] float32, the first for the token itself; mixed:
    [tokens, C], after SiLU, rounded. The windows of states that are written, and what draft tokens leave, too."""
    token = tl.program_id(0).to(tl.int64)
    if token < tl.load(count):
        columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = columns < CHANNELS
        entry = tokens + token * (TAPS + 3)
        first, second, trail = tl.load(entry + TAPS), tl.load(entry + TAPS + 1), tl.load(entry + TAPS + 2)
        total = tl.zeros((BLOCK,), tl.float32)
        for distance in tl.static_range(TAPS):
            x = load_input(
                rows, states, trails, tl.load(entry + distance), columns, inside, ROW, TRAIL, STATE, WINDOW, CHANNELS,
                REACH, NUM_TRAILS,
            )  # fmt: skip
            total += x * tl.load(taps + distance * CHANNELS + columns, mask=inside, other=0.0)
            if distance < TAPS - 1:
                window = states + WINDOW + distance * CHANNELS + columns
                tl.store(window + first * STATE, x, mask=inside & (first >= 0))
                tl.store(window + second * STATE, x, mask=inside & (second >= 0))
            if distance == 0:
                tl.store(trails + trail * TRAIL + columns, x.to(trails.dtype.element_ty), mask=inside & (trail >= 0))
        activated = total / (1.0 + tl.exp(-total))
        tl.store(mixed + token * CHANNELS + columns, activated.to(mixed.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize_on_alignment=["tokens", "operations", "runs"])
def delta_recurrence_kernel(
    states, mixed, gates, tokens, operations, runs, out, q_scale,
    STATE: tl.constexpr, TAPS: tl.constexpr, KEY_HEADS: tl.constexpr, VALUE_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr,
) -> None:  # fmt: skip
    """One program per value head of a run and block of its values, token after token: one body for committed and draft
    tokens, so that the same token has the same bits as either. out: [T, V dv], rounded.

    An operation is twice a token, plus 1 where the state is that behind the last committed token before it."""
    run, head = tl.program_id(0) // VALUE_HEADS, tl.program_id(0) % VALUE_HEADS
    begin, count = tl.load(runs + 3 * run), tl.load(runs + 3 * run + 1)
    source = tl.load(runs + 3 * run + 2)
    keys = tl.arange(0, KEYS)
    values = tl.program_id(1) * VALUES + tl.arange(0, VALUES)
    in_keys, in_values = keys < KEY_DIM, values < VALUE_DIM
    inside = in_keys[:, None] & in_values[None, :]
    offsets = (head * KEY_DIM + keys)[:, None] * VALUE_DIM + values[None, :]
    state = tl.load(states + source * STATE + offsets, mask=inside, other=0.0)
    root = state
    key_head = head // (VALUE_HEADS // KEY_HEADS)
    for i in range(count):
        operation = tl.load(operations + begin + i)
        token = operation // 2
        state = tl.where(operation % 2 == 1, root, state)
        entry = tokens + token * (TAPS + 3)
        row, first, second = tl.load(entry), tl.load(entry + TAPS), tl.load(entry + TAPS + 1)
        of_token = mixed + token * ((2 * KEY_HEADS) * KEY_DIM + VALUE_HEADS * VALUE_DIM)
        q = tl.load(of_token + key_head * KEY_DIM + keys, mask=in_keys, other=0.0).to(tl.float32)
        k = tl.load(of_token + (KEY_HEADS + key_head) * KEY_DIM + keys, mask=in_keys, other=0.0).to(tl.float32)
        v = tl.load(of_token + 2 * KEY_HEADS * KEY_DIM + head * VALUE_DIM + values, mask=in_values, other=0.0)
        decay = tl.load(gates + token * 2 * VALUE_HEADS + head)
        beta = tl.load(gates + token * 2 * VALUE_HEADS + VALUE_HEADS + head)
        q = q * tl.rsqrt(tl.sum(q * q, axis=0) + EPS_OF_LENGTH) * q_scale
        k = k * tl.rsqrt(tl.sum(k * k, axis=0) + EPS_OF_LENGTH)
        state = state * decay
        delta = (v.to(tl.float32) - tl.sum(state * k[:, None], axis=0)) * beta
        state = state + k[:, None] * delta[None, :]
        root = tl.where(first >= 0, state, root)
        read = tl.sum(state * q[:, None], axis=0)
        at = out + row * (VALUE_HEADS * VALUE_DIM) + head * VALUE_DIM + values
        tl.store(at, read.to(out.dtype.element_ty), mask=in_values & (row >= 0))
        tl.store(states + first * STATE + offsets, state, mask=inside & (first >= 0))
        tl.store(states + second * STATE + offsets, state, mask=inside & (second >= 0))


@triton.jit
def gated_norm_kernel(
    x, rows, weight, eps,
    ROW: tl.constexpr, GATE: tl.constexpr, VALUE_HEADS: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """x: [T, V dv], in place: the RMS norm of each head, rounded, times weight [dv] in float32 and SiLU of the gate,
    which is in the row from its GATE-th number on."""
    program = tl.program_id(0).to(tl.int64)
    row, head = program // VALUE_HEADS, program % VALUE_HEADS
    columns = tl.arange(0, BLOCK)
    inside = columns < VALUE_DIM
    at = x + program * VALUE_DIM + columns
    raw = tl.load(at, mask=inside, other=0.0)
    values = raw.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / VALUE_DIM + eps)
    normed = (values * scale).to(raw.dtype).to(tl.float32) * tl.load(weight + columns, mask=inside, other=0.0)
    z = tl.load(rows + row * ROW + GATE + head * VALUE_DIM + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(at, (normed * (z / (1.0 + tl.exp(-z)))).to(raw.dtype), mask=inside)
