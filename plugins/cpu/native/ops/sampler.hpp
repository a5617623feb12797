// Tokens and log-probabilities of many rows: rows are tasks of the pool, and so are slices of few large rows.
//
// What a row gets does not depend on that: maxima merge exactly, and sums are never cut.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/thread_pool.hpp"
#include "kernels/sampling_table.hpp"

namespace specserve {

// Logits [count][size], rows `stride` apart.
struct Logits {
    const float* at;
    ptrdiff_t stride;
    int count, size;

    const float* row(int64_t i) const { return at + i * stride; }
};

// A change of a few logits, as the core's LogitEdits says; ids and values lie in the lists of `TargetRows`.
struct Edit {
    enum Kind { penalize, shift, keep_only, forbid } kind;
    size_t first_id, first_value;
    int count;
    float repetition = 1.0f, presence = 0.0f, frequency = 0.0f;
};

struct TargetRow {
    int64_t row;  // in the logits
    uint64_t seed;
    int64_t index;
    float temperature;  // 0: greedy
    int64_t top_k;
    double top_p, min_p;
    const float* given = nullptr;  // logits that stand in for the row's
    size_t first_edit = 0, num_edits = 0;

    bool cuts() const { return temperature > 0.0f && (top_k > 0 || top_p < 1.0 || min_p > 0.0); }
};

struct TargetRows {
    std::vector<TargetRow> rows;
    std::vector<Edit> edits;
    std::vector<int64_t> ids;
    std::vector<float> values;
};

struct RowLogprobs {
    float logprob;
    std::vector<int32_t> top_ids;
    std::vector<float> top_logprobs;
};

class Sampler {
   public:
    Sampler(const Sampling& table, std::shared_ptr<Pool> pool) : table_(table), pool_(std::move(pool)) {}

    std::vector<int> argmax(Logits logits);
    // Every index in `wanted` lies in the logits.
    std::vector<int> targets(Logits logits, const TargetRows& wanted);
    // Row i's token i, and its counts[i] best by (value, lower id).
    std::vector<RowLogprobs> logprobs(Logits logits, const int64_t* tokens, const int64_t* counts);
    void noise(uint64_t seed, int64_t index, int size, float* out) const;

   private:
    struct Scratch {
        std::vector<float> own, values, weights;
        std::vector<int32_t> ids;
        void fit(int size);
    };
    // A row that is ready to be sampled: edited, and cut off by `noise.least`.
    struct Ready {
        const float* at;
        Noise noise;
        bool noisy;
    };

    // Few rows of many tokens: then a row is everybody's.
    bool is_split(int count, int size) const;
    std::vector<int> split_targets(Logits logits, const TargetRows& wanted);
    template <typename Body>
    void in_phases(int phases, int64_t work, Body body);
    Ready prepare(Logits logits, const TargetRows& wanted, const TargetRow& row, Scratch& scratch) const;
    void apply(const TargetRows& wanted, const Edit& edit, int size, float* x) const;
    float least_kept(const TargetRow& row, int size, float top, Scratch& scratch) const;
    float top_k_least(int64_t count, int size, float top, Scratch& scratch) const;
    int nucleus_candidates(int size, float top, double target, Scratch& scratch) const;
    RowLogprobs logprobs_of(const float* x, int size, int64_t token, int64_t count, Scratch& scratch) const;
    std::vector<Scratch>& scratch_for(size_t count);

    Sampling table_;
    std::shared_ptr<Pool> pool_;
    std::mutex mutex_;  // the scratch memory is shared by all calls
    std::vector<Scratch> scratch_;
};

}  // namespace specserve
