// The sampling kernels of one instruction set: passes over one row of logits. A NaN logit counts as -inf everywhere.
#pragma once

#include "kernels/common.hpp"

namespace specserve {

// SplitMix64's increment and multipliers, as in the core's sampling/seeds.py.
constexpr uint64_t kGamma = 0x9E3779B97F4A7C15, kFirstMultiplier = 0xBF58476D1CE4E5B9,
                   kSecondMultiplier = 0x94D049BB133111EB;

// The upper half of SplitMix64's output for this state.
INLINE uint32_t splitmix64_high(uint64_t z) {
    z = (z ^ z >> 30) * kFirstMultiplier;
    z = (z ^ z >> 27) * kSecondMultiplier;
    return static_cast<uint32_t>((z ^ z >> 31) >> 32);
}

// The largest score and the lowest token id that has it.
struct ArgMax {
    float score;
    int token;
};

// Gumbel-max sampling: score = logit / temperature + Gumbel noise. Tokens with a logit below `cutoff` are excluded.
struct GumbelParams {
    uint64_t key;  // of the row's noise
    float temperature, cutoff;
};

struct SamplingTable {
    // Over x[begin, end).
    ArgMax (*argmax)(const float* x, int begin, int end);
    // The best perturbed score in x[begin, end). `hint`: a token that probably scores high, best the row's argmax; the
    // vector that contains it is scored too. The higher its score, the more tokens are pruned. begin: a multiple of
    // kLanes; size: of the whole row.
    ArgMax (*gumbel_argmax)(const float* x, int size, int begin, int end, GumbelParams, int hint);
    void (*gumbel_noise)(uint64_t key, int size, float* out);
    // out[i] = x[i] / temperature + the noise of token ids[i], or of token i if `ids` is null; -inf below the cutoff.
    void (*draft_scores)(const float* x, const int64_t* ids, int size, GumbelParams, float* out);

    // out[i] = x[i] / divisor; `out` may be `x`.
    void (*divide)(const float* x, int size, float divisor, float* out);
    // sum(exp(x - row_max)) in float64; the order of additions is fixed.
    double (*sum_exp)(const float* x, int size, float row_max);
    // out[i] = exp(x[i] - row_max)
    void (*exp_shifted)(const float* x, int size, float row_max, float* out);
    // Copies the values >= threshold, in order; returns their number. `out` has room for kLanes more.
    int (*filter_at_least)(const float* x, int size, float threshold, float* out);
    // Their indices.
    int (*indices_at_least)(const float* x, int size, float threshold, int32_t* out);
    // The largest v such that the weights of all values >= v sum up to `target`; the smallest value if there is none.
    // weights: null for 1 each. Overwrites both arrays, which have room for kLanes more; size >= 1.
    float (*select_threshold)(float* values, float* weights, int size, double target);
};

}  // namespace specserve
