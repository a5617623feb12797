// Attention of a batch over the paged cache, by all threads of the pool: a task is one tile or, where tiles are few,
// one segment of keys of one tile and one KV head (split-KV, as in Flash-Decoding).
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "ops/attention_plan.hpp"
#include "ops/attention_workspace.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

constexpr int kTileQueries = 64;  // of one KV head: rows times group size

inline int rows_per_tile(const HeadShape& heads) { return std::max(1, kTileQueries / heads.group_size()); }

template <typename S>
class Attention {
   public:
    // min_key: keys of earlier positions are hidden, as if a request began there.
    Attention(const KernelTable<S>& table, KVLayout<S> layout, HeadShape heads, float scale, int min_key = 0)
        : table_(table), layout_(layout), heads_(heads), scale_(scale), min_key_(min_key) {}

    // Allocates the memory for a batch. Called before the job, by one thread.
    void prepare(const AttentionPlan& plan, int num_threads);

    // Prefetches the keys and values of the thread's first task in `run` into the L2 cache.
    void prefetch_first(const ThreadPool::Team& team, const AttentionPlan& plan, KVCacheLayer cache, int window) const;

    // Of batches that read many keys for each row: what the thread's own tasks of `run` read. Called by each thread of
    // a job, once after `prepare`.
    void find_pages(const ThreadPool::Team& team, const AttentionPlan& plan);
    // The same of one layer, to be prefetched; nothing before `find_pages`, and of layers with a window.
    PagesAhead pages_ahead(int thread, KVCacheLayer cache, int window) const;

    // One phase of a job. q: [rows][num_heads][head_dim], rows `q_stride` apart; out: [rows][num_heads * head_dim].
    void run(ThreadPool::Team& team, const AttentionPlan& plan, const S* q, ptrdiff_t q_stride, KVCacheLayer cache,
             ScoreRules rules, S* out);

   private:
    using Workspace = AttentionWorkspace<S>;
    struct SplitTask {
        int tile, segment, kv_head;
    };
    struct KVHeads {
        int first, count;
    };
    struct Inputs {
        const AttentionPlan& plan;
        const S* q;
        ptrdiff_t q_stride;
        KVCacheLayer cache;
        ScoreRules rules;
        S* out;
    };

    int num_segments(const Tile& tile) const { return ceil_div(tile.num_keys(), kSegmentKeys); }
    int first_segment(const Tile& tile, int window) const {
        return window ? std::max(0, tile.kv_len - tile.ahead - window) / kSegmentKeys : 0;
    }
    int segment_keys(const Tile& tile, int segment) const {
        return std::min(kSegmentKeys, tile.num_keys() - segment * kSegmentKeys);
    }
    void prepare_split(const std::vector<Tile>& tiles);
    void gather_queries(const Tile& tile, int begin, int end, const Inputs& in, Workspace& workspace) const;
    void attend_segment(const Tile& tile, KVHeads kv_heads, int segment, const Inputs& in, const Workspace& workspace,
                        const int64_t* slots, KVPrefetch next, PartialAttention out) const;
    void run_tile(const Tile& tile, const Tile* next_tile, const Inputs& in, Workspace& workspace) const;
    void run_split(const SplitTask& task, const SplitTask* next_task, const Inputs& in, Workspace& workspace);
    void write_output(const Tile& tile, int kv_head, PartialAttention state, const Inputs& in,
                      Workspace& workspace) const;

    // Last to first: a prompt's last tiles see most keys, and a long task at the end would leave threads idle.
    static const Tile* tile_of_task(const AttentionPlan& plan, int task) {
        return plan.tiles().data() + plan.tiles().size() - 1 - task;
    }
    // Where a KV head begins in the cache.
    ptrdiff_t head_offset(int kv_head) const {
        return kv_head * layout_.head_bytes(heads_.head_dim) * layout_.page_slots;
    }

    KernelTable<S> table_;
    KVLayout<S> layout_;
    HeadShape heads_;
    float scale_;
    int min_key_;

    int max_queries_ = 0;  // of the largest tile so far
    size_t partial_bytes_ = 0;
    std::vector<Workspace> workspaces_;          // by thread
    std::vector<std::vector<ptrdiff_t>> pages_;  // by thread: where pages begin among a layer's keys

    bool is_split_ = false;
    std::vector<SplitTask> split_tasks_;
    std::vector<size_t> first_task_;                 // of each tile
    std::vector<char> partials_;                     // by task
    std::unique_ptr<std::atomic<int>[]> remaining_;  // segments to do, by tile and KV head
    size_t remaining_size_ = 0;
};

}  // namespace specserve
