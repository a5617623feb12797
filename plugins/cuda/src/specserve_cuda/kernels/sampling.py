"""The kernels of the CUDA sampler: edits of rows of logits, and the target token of a row. One program per row.

A row's token is a function of its logits and its own numbers: sums run block by block in one order. Cut-offs are
thresholds found by search over the bits of float32, without a sort. Numbers of the host come as int64, floats as the
bits of float64. Imports Triton.
"""
# mypy: disable-error-code="untyped-decorator"
# (triton ships no types)

from __future__ import annotations

import triton
import triton.language as tl

from specserve.api.sampling import GAMMA, MULTIPLIERS, W_MAX, signed

ROW_FIELDS, OP_FIELDS = 8, 8
PENALIZE, SHIFT, KEEP_ONLY, FORBID, KEEP_BITS = range(5)
"""Kinds of edits: `specserve.api.LogitEdits`."""

PENALIZE_, SHIFT_, KEEP_ONLY_ = tl.constexpr(PENALIZE), tl.constexpr(SHIFT), tl.constexpr(KEEP_ONLY)
KEEP_BITS_ = tl.constexpr(KEEP_BITS)
OP_FIELDS_, ROW_FIELDS_ = tl.constexpr(OP_FIELDS), tl.constexpr(ROW_FIELDS)
STEP, FIRST, SECOND = (tl.constexpr(signed(number)) for number in (GAMMA, *MULTIPLIERS))
MOST_W = tl.constexpr(W_MAX)
PROBES = tl.constexpr(8)
"""A search looks at this many places at once."""


@triton.jit
def number_at(field: tl.tensor) -> tl.tensor:
    """The float64 whose bits are there."""
    return tl.load(field).to(tl.float64, bitcast=True)


@triton.jit
def penalized(x: tl.tensor, times: tl.tensor, op: tl.tensor) -> tl.tensor:
    """Repetition, presence and frequency, as `specserve.sampling.edits.TorchRow` computes them."""
    repetition, presence = number_at(op + 3).to(tl.float32), number_at(op + 4).to(tl.float32)
    frequency = number_at(op + 5).to(tl.float32)
    if repetition != 1.0:
        x = tl.where(x > 0, tl.div_rn(x, repetition), x * repetition)
    return x - frequency * times - presence * tl.where(times > 0, 1.0, 0.0)


@triton.jit(do_not_specialize=["vocab_size"], do_not_specialize_on_alignment=["rows"])
def edit_kernel(
    logits: tl.tensor,
    numbers: tl.tensor,
    rows: tl.tensor,
    edited: tl.tensor,
    kept: tl.tensor,
    vocab_size: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """edited[e] = a row of logits with its edits, one after the other. rows: [n, 4]: row of logits, e, where its edits
    begin in `numbers`, and how many. An edit: kind, where its ids or, in words of 64, its bits begin, how many, three
    numbers, where its values begin. `kept`: room for as many floats as `numbers` has."""
    field = rows + tl.program_id(0).to(tl.int64) * 4
    source, target = logits + tl.load(field) * vocab_size, edited + tl.load(field + 1) * vocab_size
    lanes = tl.arange(0, BLOCK)
    for start in range(0, vocab_size, BLOCK):
        inside = start + lanes < vocab_size
        tl.store(target + start + lanes, tl.load(source + start + lanes, mask=inside), mask=inside)
    first, count = tl.load(field + 2), tl.load(field + 3).to(tl.int32)
    for i in range(count):
        tl.debug_barrier()  # the threads of a program write and read each other's numbers
        op = numbers + first + i * OP_FIELDS_
        kind, ids, num_ids = tl.load(op), tl.load(op + 1), tl.load(op + 2).to(tl.int32)
        values = numbers + tl.load(op + 6)
        if kind == KEEP_BITS_:
            for start in range(0, vocab_size, BLOCK):
                token = start + lanes
                inside = token < vocab_size
                word = tl.load(numbers + ids + token // 64, mask=inside, other=0)
                is_left = (word >> (token % 64).to(tl.int64)) & 1
                tl.store(target + token, float("-inf"), mask=inside & (is_left == 0))
            num_ids *= 0
        if kind == KEEP_ONLY_:
            for start in range(0, num_ids, BLOCK):
                inside = start + lanes < num_ids
                at = tl.load(numbers + ids + start + lanes, mask=inside, other=0)
                tl.store(kept + ids + start + lanes, tl.load(target + at, mask=inside), mask=inside)
            tl.debug_barrier()
            for start in range(0, vocab_size, BLOCK):
                tl.store(target + start + lanes, float("-inf"), mask=start + lanes < vocab_size)
            tl.debug_barrier()
        for start in range(0, num_ids, BLOCK):
            inside = start + lanes < num_ids
            at = tl.load(numbers + ids + start + lanes, mask=inside, other=0)
            x = tl.full((BLOCK,), float("-inf"), tl.float32)
            if kind == KEEP_ONLY_:
                x = tl.load(kept + ids + start + lanes, mask=inside)
            elif kind == PENALIZE_:
                times = tl.load(values + start + lanes, mask=inside, other=0).to(tl.float64, bitcast=True)
                x = penalized(tl.load(target + at, mask=inside), times.to(tl.float32), op)
            elif kind == SHIFT_:
                shift = tl.load(values + start + lanes, mask=inside, other=0).to(tl.float64, bitcast=True)
                x = tl.load(target + at, mask=inside) + shift.to(tl.float32)
            tl.store(target + at, x, mask=inside)


@triton.jit
def warm_block(base: tl.tensor, columns: tl.tensor, vocab_size: tl.tensor, temperature: tl.tensor) -> tl.tensor:
    """Logits over temperature; -inf for NaN and beyond the vocabulary."""
    x = tl.load(base + columns, mask=columns < vocab_size, other=float("-inf"))
    return tl.where(x == x, tl.div_rn(x, temperature), float("-inf"))


@triton.jit
def ordered(x: tl.tensor) -> tl.tensor:
    """int64 in the order of the float32."""
    bits = x.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)


@triton.jit
def unordered(number: tl.tensor) -> tl.tensor:
    """The float32 of an `ordered` number."""
    bits = number.to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def block_weights(x: tl.tensor, best: tl.tensor, by_weight: tl.tensor) -> tl.tensor:
    """What each token counts: itself, or its probability in units of the best token's."""
    return tl.where(by_weight, tl.where(x == float("-inf"), 0.0, tl.exp(x - best)), 1.0)


@triton.jit
def search(
    base: tl.tensor,
    vocab_size: tl.tensor,
    temperature: tl.tensor,
    best: tl.tensor,
    least: tl.tensor,
    wanted: tl.tensor,
    by_weight: tl.tensor,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """The largest threshold, `least` or above, such that the tokens that reach it count `wanted` or more together."""
    low, high = ordered(least), ordered(best) + 1
    probes = tl.arange(0, PROBES).to(tl.int64)
    while high - low > 1:
        gap = (high - low + PROBES - 1) // PROBES
        places = tl.minimum(low + gap * probes, high)
        reached = tl.zeros((PROBES,), tl.float64)
        for start in range(0, vocab_size, BLOCK):
            x = warm_block(base, start + tl.arange(0, BLOCK), vocab_size, temperature)
            weights = block_weights(x, best, by_weight)
            reaches = ordered(x)[None, :] >= places[:, None]
            reached += tl.sum(tl.where(reaches, weights[None, :], 0.0), axis=1).to(tl.float64)
        good = (reached >= wanted) & (places < high)
        low, high = (
            tl.maximum(low, tl.max(tl.where(good, places, low), axis=0)),
            tl.minimum(high, tl.min(tl.where(good, high, tl.maximum(places, low + 1)), axis=0)),
        )
    return unordered(low)


@triton.jit
def noise(key: tl.tensor, columns: tl.tensor) -> tl.tensor:
    """Standard Gumbel noise as `specserve.sampling.noise` has it. The logarithms are float64's, rounded to float32: the
    CPU's are float32's, and differ in the last bit now and then."""
    z = key + (columns.to(tl.int64) + 1) * STEP
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * FIRST
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * SECOND
    h = ((z ^ ((z >> 31) & ((1 << 33) - 1))) >> 32) & ((1 << 32) - 1)
    w = tl.minimum((h.to(tl.float32) + 0.5) * 2.0**-32, MOST_W).to(tl.float64)
    rest = 1.0 - w
    # log1p(-w) for small w, too (Kahan): what is lost of w in `rest` is lost in both factors
    exponential = -(tl.log(rest) * (w / tl.maximum(1.0 - rest, 1e-300)))
    exponential = tl.where(rest == 1.0, w, exponential).to(tl.float32)
    return -tl.log(exponential.to(tl.float64)).to(tl.float32)


@triton.jit
def threshold_of(
    base: tl.tensor, vocab_size: tl.tensor, temperature: tl.tensor, field: tl.tensor, BLOCK: tl.constexpr
) -> tl.tensor:
    """Of top-k, then top-p over what it left, then min-p, as in `specserve.sampling.cutoffs`."""
    best = tl.full((), float("-inf"), tl.float32)
    for start in range(0, vocab_size, BLOCK):
        x = warm_block(base, start + tl.arange(0, BLOCK), vocab_size, temperature)
        best = tl.maximum(best, tl.max(x, axis=0))
    threshold = tl.full((), float("-inf"), tl.float32)
    top_k, top_p, log_min_p = tl.load(field + 4), number_at(field + 5), number_at(field + 6)
    if (top_k > 0) & (top_k < vocab_size):
        threshold = search(base, vocab_size, temperature, best, threshold, top_k.to(tl.float64), False, BLOCK)
    if (top_p < 1.0) & (best > float("-inf")):
        total, above = tl.full((), 0.0, tl.float64), tl.full((), 0, tl.int64)
        for start in range(0, vocab_size, BLOCK):
            x = warm_block(base, start + tl.arange(0, BLOCK), vocab_size, temperature)
            left = x > threshold
            total += tl.sum(tl.where(left, block_weights(x, best, True), 0.0), axis=0).to(tl.float64)
            above += tl.sum(left.to(tl.int64), axis=0)
        if threshold > float("-inf"):  # of tokens that tie with the last of top-k, those that make k
            total += (top_k - above).to(tl.float64) * tl.exp(threshold - best).to(tl.float64)
        threshold = search(base, vocab_size, temperature, best, threshold, top_p * total, True, BLOCK)
    return tl.maximum(threshold, (best.to(tl.float64) + log_min_p).to(tl.float32))


@triton.jit(do_not_specialize=["vocab_size"])
def sample_kernel(
    logits: tl.tensor,
    edited: tl.tensor,
    rows: tl.tensor,
    tokens: tl.tensor,
    scores: tl.tensor,
    vocab_size: tl.tensor,
    KEEPS_SCORES: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """tokens[i]: the target token of rows[i], -1 where its edits left none; scores[i]: what it is the argmax of. A row:
    its row of logits, of `edited` or -1, the key of its noise, its temperature or 0, top_k, top_p, the logarithm of
    min_p."""
    program = tl.program_id(0).to(tl.int64)
    field = rows + program * ROW_FIELDS_
    base = logits + tl.load(field) * vocab_size
    edit = tl.load(field + 1)
    if edit >= 0:
        base = edited + edit * vocab_size
    key, temperature = tl.load(field + 2), number_at(field + 3).to(tl.float32)
    is_sampled = temperature > 0.0
    threshold = tl.full((), float("-inf"), tl.float32)
    if is_sampled:
        threshold = threshold_of(base, vocab_size, temperature, field, BLOCK)
    else:
        temperature = tl.full((), 1.0, tl.float32)
    best, token = tl.full((), float("-inf"), tl.float32), tl.full((), 0, tl.int64)
    for start in range(0, vocab_size, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = warm_block(base, columns, vocab_size, temperature)
        if is_sampled:
            x = tl.where(x < threshold, float("-inf"), x + noise(key, columns))
        if KEEPS_SCORES:
            tl.store(scores + program * vocab_size + columns, x, mask=columns < vocab_size)
        most = tl.max(x, axis=0)
        lowest = tl.min(tl.where(x == most, columns, vocab_size), axis=0)
        token = tl.where(most > best, lowest.to(tl.int64), token)
        best = tl.maximum(best, most)
    tl.store(tokens + program, tl.where((edit >= 0) & (best == float("-inf")), -1, token))
