// The kernels of gated delta nets (Yang et al., 2024): what a token does, and nothing of which tokens there are.
// Letters as in `GatedDeltaNet` of the core: S [dk][dv] the state of a value head, C channels of the convolution, L
// taps.
#pragma once

#include "kernels/common.hpp"

namespace specserve {

constexpr int kMaxTaps = 8;
constexpr int kDeltaColumns = 64;  // columns of S that a task walks: 32 KB of 128 rows

// The inputs of a convolution: those of the token itself and of the tokens before it, the nearest first. The first
// `num_rows` are rows of S, the others float32, from the state.
template <typename S>
struct ConvInputs {
    const S* rows[kMaxTaps];
    const float* window[kMaxTaps];
    int num_rows, num_taps;
};

// Columns of a head's state, [dk] rows.
struct DeltaColumns {
    float* data;
    ptrdiff_t stride;
};

// A token's step of some columns of a head's state: S <- decay S; S <- S + k (beta (v - S^T k))^T; out = S^T q. It
// takes S^T k from the pass before it, and finds that of the next token in the pass that writes S.
struct DeltaStep {
    const float* from;
    ptrdiff_t from_stride;
    DeltaColumns to;        // may be `from`; null: nothing reads S from there
    DeltaColumns streamed;  // null, or whole cache lines that S is written to past the caches
    const float *k, *q;     // [dk]
    int dk;
    const float* v;  // [columns]
    float decay, beta;
    float* out;               // [columns]
    float* known;             // [columns]: S^T k, then S^T next_k
    const float* next_k;      // [dk]; null: no token is next
    float* update;            // null, or where beta (v - S^T k) is left: [columns]
    const float* prefetched;  // null, or rows of `from_stride` that another step reads next
};

// Tokens whose updates an earlier step has left: S <- decay S + k update^T for each in turn, in one pass over S.
struct DeltaFollow {
    const float* from;
    ptrdiff_t from_stride;
    DeltaColumns to;  // may be `from`
    int dk, num_tokens;
    const float* const* k;        // of each token: [dk]
    const float* const* updates;  // of each: [columns]
    const float* decays;          // of each
    float* known;                 // [columns]: S^T next_k
    const float* next_k;          // [dk]; null: no token is next
    const float* prefetched;      // null, or rows of `from_stride` that another step reads next
};

template <typename S>
struct GatedDeltaTable {
    // SiLU of the convolution of channels [begin, begin + count), rounded to S. taps: [L][num_channels].
    void (*convolve)(const ConvInputs<S>&, const float* taps, int num_channels, int begin, int count, float* out);
    // x becomes `length` long.
    void (*set_length)(float* x, float length, int size);
    // Of each value head: decay = e^(rate softplus(a + dt_bias)), beta = sigmoid(b) rounded to S.
    void (*gates)(const S* a, const S* b, const float* dt_bias, const float* rate, int count, float* decay,
                  float* beta);
    // known = S^T k of the state that a step begins with. Here and there, a column's bits do not depend on the others.
    void (*know)(const DeltaStep&, int columns);
    void (*step)(const DeltaStep&, int columns);
    void (*follow)(const DeltaFollow&, int columns);
    void (*finish_streaming)();  // what was streamed is visible to other threads
    // The RMSNorm of o, rounded to S before it and behind it, times `weight` and SiLU of the gate z.
    void (*norm_and_gate)(const float* o, const S* z, const float* weight, float eps, int size, S* out);
};

}  // namespace specserve
