// Attention of a whole batch over the paged cache, by all threads: units of one tile or, where there are few of those,
// of one segment of keys and one key head.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "ops/attention_plan.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

struct Heads {
    int queries, keys, dim;
    int group() const { return queries / keys; }
    bool operator==(const Heads&) const = default;
};

constexpr int kQueries = 64;  // queries of a tile: rows times heads of a group

inline int rows_per_tile(const Heads& heads) { return std::max(1, kQueries / heads.group()); }

template <typename S>
class Attention {
   public:
    Attention(const Table<S>& table, Layout<S> layout, Heads heads, float scale)
        : table_(table), layout_(layout), heads_(heads), scale_(scale) {}

    // Memory for the batch; call before the job, in one thread.
    void prepare(const Plan& plan, int threads);

    // The keys and values that the thread will begin with in `run`, towards its caches.
    void fetch_first(const Pool::Crew& crew, const Plan& plan, CacheLayer<S> cache, int window) const;

    // One phase of a job. q: [rows][query heads][dim], `q_stride` between rows; out: [rows][query heads * dim].
    void run(Pool::Crew& crew, const Plan& plan, const S* q, ptrdiff_t q_stride, CacheLayer<S> cache, int window,
             S* out);

   private:
    // What one thread works with; no two share any of it.
    struct Desk {
        std::vector<char> memory;
        S* queries;    // [heads][queries of a tile][dim]
        S* results;    // [queries of a tile][dim]
        int* lengths;  // [queries of a tile]
        int64_t* slots[2];
        char* states;  // running results of every head
        char* part;    // of one segment
        char* scratch;
    };
    struct Unit {
        int tile, segment, head;
    };
    struct Call {
        const Plan& plan;
        const S* q;
        ptrdiff_t q_stride;
        CacheLayer<S> cache;
        int window;
        S* out;
    };

    int segments_of(const Tile& tile) const { return divided_up(tile.keys(), kSegment); }
    int first_segment(const Tile& tile, int window) const {
        return window ? std::max(0, tile.seen - window) / kSegment : 0;
    }
    int keys_of(const Tile& tile, int segment) const { return std::min(kSegment, tile.keys() - segment * kSegment); }
    Partial partial(char* memory, int count) const;
    void set_up(Desk& desk, int most);
    void take(const Tile& tile, int begin, int end, const Call& call, Desk& desk) const;
    void attend(const Tile& tile, int head, int segment, const Call& call, const Desk& desk, const int64_t* slots,
                Ahead<S> ahead, Partial out) const;
    void whole(const Tile& tile, const Tile* next, const Call& call, Desk& desk) const;
    void split(const Unit& unit, const Unit* next, const Call& call, Desk& desk);
    void finish(const Tile& tile, int head, Partial state, const Call& call, Desk& desk) const;

    // Last to first: a prompt's last tiles see most keys, and those left for the end should be short.
    static const Tile* tile_of(const Plan& plan, int task) {
        return plan.tiles().data() + plan.tiles().size() - 1 - task;
    }
    // Where a key head's numbers begin.
    ptrdiff_t at(int head) const { return ptrdiff_t{head} * heads_.dim * layout_.slots; }

    Table<S> table_;
    Layout<S> layout_;
    Heads heads_;
    float scale_;

    bool split_ = false;
    int most_ = 0;                              // queries of the largest tile so far
    std::vector<Desk> desks_;                   // by thread
    std::vector<Unit> units_;                   // when split
    std::vector<size_t> first_unit_;            // of each tile
    std::unique_ptr<std::atomic<int>[]> left_;  // segments to do, by tile and key head
    size_t num_left_ = 0;
    std::vector<char> partials_;  // by unit
    size_t partial_bytes_ = 0;
};

}  // namespace specserve
