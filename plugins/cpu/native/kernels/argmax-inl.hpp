// Argmax over one row of logits, with and without Gumbel noise. Maxima are exact, so a row may be cut anywhere.

constexpr float kMaxNoise = 23.0f;       // the noise of hash 0 is 22.874
constexpr float kRoundingSlack = 1e-6f;  // relative: far above the error of a division and an addition
constexpr float kLn2 = 0.69314718056f;

// x[i, i + 16); lanes from x[end] on are `fill`.
INLINE Vec load_or_fill(const float* x, int i, int end, float fill) {
    return i + kLanes <= end ? load(x + i) : replace_tail(load(x + i, end - i), end - i, fill);
}

// First finds the block with the maximum, then the token in it.
static ArgMax argmax(const float* x, int begin, int end) {
    constexpr int kBlock = 32 * kLanes;
    float best = kNegInf;
    int best_block = begin;
    for (int b = begin; b < end; b += kBlock) {
        int stop = b + kBlock < end ? b + kBlock : end;
        Vec maxima[4] = {splat(kNegInf), splat(kNegInf), splat(kNegInf), splat(kNegInf)};
        int t = b;
        for (; t + 4 * kLanes <= stop; t += 4 * kLanes)
            for (int i = 0; i < 4; ++i) maxima[i] = max(load(x + t + i * kLanes), maxima[i]);
        for (; t < stop; t += kLanes) maxima[0] = max(load_or_fill(x, t, stop, kNegInf), maxima[0]);
        float block_max = reduce_max(max(max(maxima[0], maxima[1]), max(maxima[2], maxima[3])));
        if (block_max > best) {
            best = block_max;
            best_block = b;
        }
    }
    if (best == kNegInf) return {kNegInf, begin};
    for (int t = best_block;; t += kLanes)
        if (unsigned equal = mask_ge(load_or_fill(x, t, end, kNegInf), splat(best)))
            return {best, t + __builtin_ctz(equal)};
}

// Updates `best` with the perturbed scores of sixteen tokens from `token` on.
INLINE void score_tokens(Vec x, Vec u, int token, const GumbelParams& params, ArgMax* best) {
    float scores[kLanes];
    store(scores, add(div(x, splat(params.temperature)), gumbel(u)));
    for (unsigned mask = mask_ge(x, splat(params.cutoff)); mask; mask &= mask - 1) {
        int i = __builtin_ctz(mask);
        if (scores[i] > best->score || (scores[i] == best->score && token + i < best->token))
            *best = {scores[i], token + i};
    }
}

// No logit below this can win against `best`, whatever its noise.
INLINE float prune_below(const GumbelParams& params, float best) {
    float magnitude = best < 0.0f ? -best : best;
    if (!(magnitude < 1e30f)) return params.cutoff;
    float bound = (best - kMaxNoise - kRoundingSlack * magnitude) * params.temperature;
    return bound > params.cutoff ? bound : params.cutoff;
}

// Logarithms are computed only where an upper bound of the score reaches the best score so far. -log(1 - u) >= u, so
// the noise is at most -log u; and u = 2^n (1 + m) has log2 u >= n + m, which is linear in the bits of u as an integer.
// Rounding is monotone, so the bound is never below the score: a pruned token could not have won.
static ArgMax gumbel_argmax(const float* x, int size, int begin, int end, GumbelParams params, int hint) {
    ArgMax best = {kNegInf, hint};
    int first = hint / kLanes * kLanes;
    score_tokens(load_or_fill(x, first, size, kNegInf), uniform_at(params.key, first), first, params, &best);
    Vec min_logit = splat(prune_below(params, best.score)), best_score = splat(best.score);
    Vec temperature = splat(params.temperature);
    const Vec slope = splat(-kLn2 / 8388608.0f), offset = splat(127.0f * kLn2 + 1e-3f);
    for (int t = begin; t < end; t += kLanes) {
        Vec logits = load_or_fill(x, t, end, kNegInf);
        if (!mask_ge(logits, min_logit)) continue;
        Vec u = uniform_at(params.key, t);
        Vec bound = add(div(logits, temperature), fma(bits_to_float(u), slope, offset));
        if (!mask_ge(bound, best_score)) continue;
        score_tokens(logits, u, t, params, &best);
        min_logit = splat(prune_below(params, best.score));
        best_score = splat(best.score);
    }
    return best;
}
