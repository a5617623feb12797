// Gumbel noise from the core's counter-based hash.

// (h + 1/2) / 2^32, clamped into (0, 1), rounded as in the core.
INLINE Vec uniform(Vec h) { return min(mul(add(h, splat(0.5f)), splat(0x1p-32f)), splat(1.0f - 0x1p-24f)); }

// -log(-log(1 - u)). The rounding error of 1 - u is compensated (Kahan's log1p), so that the noise has the relative
// error of the logarithms: within 1e-6 of the core's where it is above -1. Its last bits differ from torch's.
INLINE Vec gumbel(Vec u) {
    Vec one = splat(1.0f), rest = sub(one, u);
    Vec lost = sub(sub(one, rest), u);
    Vec exponential = sub(zeros(), add(log(rest), div(lost, rest)));
    return sub(zeros(), log(exponential));
}

INLINE Vec uniform_at(uint64_t key, int token) {
    return uniform(splitmix64(key + (static_cast<uint64_t>(token) + 1) * kGamma));
}

static void gumbel_noise(uint64_t key, int size, float* out) {
    for (int t = 0; t < size; t += kLanes)
        store(out + t, gumbel(uniform_at(key, t)), size - t < kLanes ? size - t : kLanes);
}
