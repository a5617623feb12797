// What sampling asks of an instruction set: passes over one row of logits. A NaN counts as -inf everywhere.
#pragma once

#include "kernels/common.hpp"

namespace specserve {

// SplitMix64's increment and multipliers, as in the core's sampling/seeds.py.
constexpr uint64_t kGamma = 0x9E3779B97F4A7C15, kFirstMultiplier = 0xBF58476D1CE4E5B9,
                   kSecondMultiplier = 0x94D049BB133111EB;

// A score and the lowest token that has it.
struct Peak {
    float value;
    int token;
};

// How a row is sampled: score = logit / temperature + the noise of `key`; logits below `least` are out.
struct Noise {
    uint64_t key;
    float temperature, least;
};

struct Sampling {
    // The first of the largest x[begin .. end).
    Peak (*peak)(const float* x, int begin, int end);
    // The best score among x[begin .. end) and some tokens around `likely`, which should be the row's peak: the better
    // its score, the fewer scores are computed. begin: a multiple of 16; size: of the whole row.
    Peak (*noisy_peak)(const float* x, int size, int begin, int end, Noise noise, int likely);
    void (*noise)(uint64_t key, int size, float* out);

    // out[i] = x[i] / by; may be in place
    void (*divide)(const float* x, int size, float by, float* out);
    // The sum of e^(x - top), in float64, sixteen sums side by side.
    double (*mass)(const float* x, int size, float top);
    void (*weigh)(const float* x, int size, float top, float* out);
    // Those of x that are at least `least`, in their order, into `out`, which has room for sixteen more. How many.
    int (*keep_least)(const float* x, int size, float least, float* out);
    // Their places, likewise.
    int (*find_least)(const float* x, int size, float least, int32_t* out);
    // The largest v of the values for which the weights of all values >= v reach `target`; the least value where none
    // does. weights: null for 1 each. Both arrays are used up and have room for sixteen more; size >= 1.
    float (*select)(float* values, float* weights, int size, double target);
};

}  // namespace specserve
