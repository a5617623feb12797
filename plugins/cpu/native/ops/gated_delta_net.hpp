// A layer of gated delta nets over the rows of a step, in one job. Letters as in `GatedDeltaNet` of the core: G key
// heads of dk, V value heads of dv, C = 2 G dk + V dv channels, L taps. A state is S of every value head, float32
// [V][dk][dv], and the inputs of the last L - 1 tokens, float32 [L - 1][C], the nearest first.
//
// A row's bits depend on its own path alone: a head's columns are walked token by token, and the order of operations of
// a token is that of the kernels, whatever the chunk, the other runs, the threads and the number of draft tokens.
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

struct DeltaShape {
    int key_heads, value_heads, key_dim, value_dim, taps;

    int key_channels() const { return key_heads * key_dim; }
    int out_features() const { return value_heads * value_dim; }
    int channels() const { return 2 * key_channels() + out_features(); }
    int trail_width() const { return channels() + 2 * value_heads; }
    int row_size() const { return trail_width() + out_features(); }
    ptrdiff_t head_size() const { return ptrdiff_t{key_dim} * value_dim; }
    ptrdiff_t window_begin() const { return value_heads * head_size(); }
    ptrdiff_t state_size() const { return window_begin() + ptrdiff_t{taps - 1} * channels(); }
};

struct DeltaWeights {
    const float* taps;            // [L][C], the first for the token itself
    const float *dt_bias, *rate;  // [V]
    const float* norm;            // [dv]
    float eps;
};

// Where the state behind a token is to be, too.
struct SavedState {
    int token;  // of the run
    float* state;
};

// What a draft token leaves for the next step: its row, and what it adds to S.
template <typename S>
struct DeltaTrail {
    S* row;         // [trail_width]
    float* update;  // [out_features]
};

// The tokens of one request: its `committed` tokens, each behind the one before it, then draft tokens. The first
// committed ones may be followed: accepted draft tokens of the step before, with what they left.
template <typename S>
struct DeltaRun {
    const float* source;  // is not changed
    float* target;        // for the state behind the committed tokens
    int committed;
    std::vector<const S*> rows;         // [committed and draft tokens][row_size], of followed ones [trail_width]
    std::vector<const float*> updates;  // of followed ones: [out_features]
    std::vector<S*> outputs;            // [out_features] each; null for followed ones
    std::vector<int> parents;           // of each draft token, an earlier one; -1 for the last committed token
    std::vector<DeltaTrail<S>> trails;  // of each draft token
    std::vector<SavedState> saved;      // ascending

    int followed() const { return static_cast<int>(updates.size()); }
    int num_tokens() const { return static_cast<int>(rows.size()); }
    // The token before this one on its path; -1 for the source.
    int before(int token) const {
        if (token < committed) return token - 1;
        int parent = parents[static_cast<size_t>(token - committed)];
        return parent < 0 ? committed - 1 : committed + parent;
    }
};

// Numbers that begin with a cache line, so that vectors of them lie within one.
class LineBuffer {
   public:
    // Its numbers are lost.
    void reserve(ptrdiff_t size) {
        if (size <= size_) return;
        memory_.reset(static_cast<float*>(::operator new(static_cast<size_t>(size) * sizeof(float), kLine)));
        size_ = size;
    }
    float* data() const { return memory_.get(); }

   private:
    static constexpr std::align_val_t kLine{64};
    struct Free {
        void operator()(float* memory) const { ::operator delete(memory, kLine); }
    };
    std::unique_ptr<float, Free> memory_;
    ptrdiff_t size_ = 0;
};

// Memory of a call, which the layers of a model share: for a limited number of tokens, whatever the step.
class DeltaWorkspace {
   public:
    explicit DeltaWorkspace(std::shared_ptr<ThreadPool> own)
        : pool(std::move(own)), blocks(static_cast<size_t>(pool->size())) {}

    std::shared_ptr<ThreadPool> pool;
    std::mutex in_use;
    LineBuffer mixed, gates, outputs;
    std::vector<LineBuffer> blocks;  // of each thread: columns of states
};

template <typename S>
class GatedDeltaNet {
   public:
    GatedDeltaNet(const KernelTable<S>& table, std::shared_ptr<DeltaWorkspace> workspace, DeltaShape shape,
                  DeltaWeights weights)
        : table_(table), workspace_(std::move(workspace)), shape_(shape), weights_(weights) {}

    const DeltaShape& shape() const { return shape_; }
    DeltaWorkspace& workspace() const { return *workspace_; }
    void mix(std::vector<DeltaRun<S>>& runs) const;

    // The same as a part of a job of the workspace's threads, which has the workspace from `prepare` on. The runs must
    // live until it ends.
    struct Work;
    Work prepare(std::vector<DeltaRun<S>>& runs) const;
    void run(ThreadPool::Team& team, const Work& work) const;

   private:
    static constexpr int kTokensOfPiece = 128;
    // Tokens [begin, end) of a run, whose numbers in the workspace begin at `first`.
    struct Stretch {
        DeltaRun<S>* run;
        int begin, end, first;

        size_t row(int token) const { return static_cast<size_t>(first + token - begin); }
    };
    // Columns [column, column + kDeltaColumns) of a head, for a stretch.
    struct Part {
        const Stretch& stretch;
        int head, column;
    };
    // Where draft tokens have the states before and behind them, among a task's branches; -1: in the target.
    struct BranchPlan {
        std::vector<int> from, to;
        std::vector<bool> is_leaf;
        int num_branches;
    };
    struct Token {
        const DeltaRun<S>& run;
        int index;   // in the run
        size_t row;  // in the workspace
    };

    std::vector<std::vector<Stretch>> pieces(std::vector<DeltaRun<S>>& runs) const;
    static BranchPlan plan_branches(const DeltaRun<S>& run);
    void compute(ThreadPool::Team& team, const std::vector<Stretch>& piece, const BranchPlan* plans,
                 const DeltaRun<S>* first_run) const;
    void convolve(const Token& token, int key_head) const;
    void leave(const Token& token) const;
    void store_window(const DeltaRun<S>& run, int token, float* state) const;
    void walk(const Part& part, const BranchPlan& plan, const float* prefetched, float* blocks) const;
    void follow(const Part& part, int begin, int end, DeltaFollow all) const;
    // The columns as they are before the stretch.
    const float* source_of(const Part& part) const {
        const DeltaRun<S>& run = *part.stretch.run;
        return (part.stretch.begin == 0 && run.committed ? run.source : run.target) + first_of(part);
    }
    bool is_streamed(const float* target, int columns) const;
    DeltaStep step_of(const Part& part, int token) const;
    const float* key_of(const Part& part, int token) const;
    const float* mixed_of(const Stretch& stretch, int token) const {
        return workspace_->mixed.data() + stretch.row(token) * static_cast<size_t>(shape_.channels());
    }
    // Of each value head, then its betas.
    const float* gates_of(const Stretch& stretch, int token) const {
        return workspace_->gates.data() + stretch.row(token) * static_cast<size_t>(2 * shape_.value_heads);
    }
    ptrdiff_t first_of(const Part& part) const { return part.head * shape_.head_size() + part.column; }
    ptrdiff_t block_size() const { return ptrdiff_t{shape_.key_dim} * kDeltaColumns; }
    void finish(const Token& token, int head) const;

    KernelTable<S> table_;
    std::shared_ptr<DeltaWorkspace> workspace_;
    DeltaShape shape_;
    DeltaWeights weights_;
};

// What `run` does, in `num_phases` phases.
template <typename S>
struct GatedDeltaNet<S>::Work {
    std::vector<std::vector<Stretch>> pieces;
    std::vector<BranchPlan> plans;
    const DeltaRun<S>* first_run = nullptr;
    int num_phases = 0;
};

}  // namespace specserve
