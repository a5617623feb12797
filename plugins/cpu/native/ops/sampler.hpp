// Tokens and log-probabilities of the rows of a logits matrix. A task is a row or, where rows are few, a slice of one:
// maxima merge exactly, and sums are never split, so threads do not reach the results.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "kernels/sampling_table.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

// [count][size]
struct Logits {
    const float* data;
    ptrdiff_t stride;
    int count, size;

    const float* row(int64_t i) const { return data + i * stride; }
};

// One of the core's LogitEdits on a row. Its token ids and values lie in the lists of `TargetRows`; keep_bits has
// `count` words in `bits` from ids_offset on instead.
struct LogitEdit {
    enum Kind { penalize, shift, keep_only, forbid, keep_bits } kind;
    size_t ids_offset, values_offset;
    int count;
    float repetition = 1.0f, presence = 0.0f, frequency = 0.0f;
};

// A row whose target token is to be chosen.
struct TargetRow {
    int64_t row;  // of the logits
    uint64_t seed;
    int64_t index;
    float temperature;  // 0: greedy
    int64_t top_k;
    double top_p, min_p;
    const float* replacement = nullptr;  // [size]: used instead of the row of the logits
    size_t edits_offset = 0, num_edits = 0;

    bool has_cutoffs() const { return temperature > 0.0f && (top_k > 0 || top_p < 1.0 || min_p > 0.0); }
};

struct TargetRows {
    std::vector<TargetRow> rows;
    std::vector<LogitEdit> edits;
    std::vector<int64_t> ids;
    std::vector<float> values;
    std::vector<uint32_t> bits;
};

constexpr int kNoToken = -1;

struct RowLogprobs {
    float logprob;
    std::vector<int32_t> top_ids;
    std::vector<float> top_logprobs;
};

// A draft token and its probability where its parent is right; probability 0: there is none.
struct DraftToken {
    int64_t token;
    float probability;
};

class Sampler {
   public:
    Sampler(const SamplingTable& table, std::shared_ptr<ThreadPool> pool) : table_(table), pool_(std::move(pool)) {}

    std::vector<int> argmax_tokens(Logits logits);
    // All row and token indices in `targets` must be in range. kNoToken where the edits of a row left none.
    std::vector<int> target_tokens(Logits logits, const TargetRows& targets);
    // Of row i: the log-probability of tokens[i], and the counts[i] best tokens by (log-probability, lower id).
    std::vector<RowLogprobs> token_logprobs(Logits logits, const int64_t* tokens, const int64_t* counts);
    // Of each target row the `count` best tokens, best first. ids: the target's id of each column, null for the same;
    // rows have no edits then.
    std::vector<DraftToken> draft_tokens(Logits logits, const TargetRows& targets, const int64_t* ids, int count);
    void gumbel_noise(uint64_t seed, int64_t index, int size, float* out) const;

   private:
    struct Workspace {
        std::vector<float> logits, values, weights;
        std::vector<int32_t> ids;
        void reserve(int size);
    };
    // A row after edits and, if it has cutoffs, temperature.
    struct PreparedRow {
        const float* logits;
        GumbelParams gumbel;
        bool is_sampled;
    };

    bool splits_rows(int count, int size) const;
    std::vector<int> target_tokens_split(Logits logits, const TargetRows& targets);
    template <typename Body>
    void run(int max_phases, int64_t work, Body body);
    std::vector<Workspace>& workspaces(size_t count);

    // sampler_rows.cpp: one row, in one thread.
    PreparedRow prepare_row(Logits logits, const TargetRows& targets, const TargetRow& row, Workspace& workspace) const;
    bool lost_all_tokens(Logits logits, const TargetRow& row, float best) const;
    void apply_edit(const TargetRows& targets, const LogitEdit& edit, int size, float* x) const;
    float cutoff(const TargetRow& row, int size, float row_max, Workspace& workspace) const;
    float top_k_threshold(int64_t k, int size, float row_max, Workspace& workspace) const;
    int top_p_candidates(int size, float row_max, double target, Workspace& workspace) const;
    // sampler_drafts.cpp
    const float* draft_scores(Logits logits, const TargetRows& targets, const TargetRow& row, const int64_t* ids,
                              Workspace& workspace) const;
    void choose_drafts(const float* scores, int size, const int64_t* ids, int count, Workspace& workspace,
                       DraftToken* out) const;
    RowLogprobs row_logprobs(const float* x, int size, int64_t token, int64_t count, Workspace& workspace) const;

    SamplingTable table_;
    std::shared_ptr<ThreadPool> pool_;
    std::mutex mutex_;  // calls share the workspaces
    std::vector<Workspace> workspaces_;
};

}  // namespace specserve
