// The perturbed scores of a draft model's tokens, with the noise that the target's verification will use.

// out[i] = x[i] / temperature + the noise of token ids[i], or of token i if `ids` is null; -inf where x[i] is below the
// cutoff.
static void draft_scores(const float* x, const int64_t* ids, int size, GumbelParams params, float* out) {
    Vec temperature = splat(params.temperature), cutoff = splat(params.cutoff);
    for (int t = 0; t < size; t += kLanes) {
        int n = size - t < kLanes ? size - t : kLanes;
        Vec logits = load_or_fill(x, t, size, kNegInf);
        unsigned kept = mask_ge(logits, cutoff);
        if (!kept) {
            store(out + t, splat(kNegInf), n);
            continue;
        }
        Vec u = uniform_at(params.key, t);
        if (ids) {
            float lanes[kLanes] = {};
            for (unsigned mask = kept; mask; mask &= mask - 1) {
                int i = __builtin_ctz(mask);
                lanes[i] =
                    static_cast<float>(splitmix64_high(params.key + (static_cast<uint64_t>(ids[t + i]) + 1) * kGamma));
            }
            u = uniform(load(lanes));
        }
        float scores[kLanes];
        store(scores, add(div(logits, temperature), gumbel(u)));
        for (int i = 0; i < n; ++i) out[t + i] = kept >> i & 1u ? scores[i] : kNegInf;
    }
}
