// Attention of a whole batch over the paged cache, by all threads: units of one tile, one key head and, where there are
// few of those, one segment of keys.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "kernels.hpp"
#include "plan.hpp"
#include "pool.hpp"

namespace specserve {

struct Heads {
    int queries, keys, dim;
    int group() const { return queries / keys; }
};

// One layer's keys or values: [slots][key heads][dim].
template <typename S>
struct CacheLayer {
    S* keys;
    S* values;
};

constexpr int kQueries = 32;  // queries of a tile: rows times heads of a group

inline int rows_per_tile(const Heads& heads) { return std::max(1, kQueries / heads.group()); }

template <typename S>
class Attention {
   public:
    Attention(const Table<S>& table, Heads heads, float scale) : table_(table), heads_(heads), scale_(scale) {}

    // Memory for the batch; call before the job, in one thread. Units of few tiles are split by segments.
    void prepare(const Plan& plan, int threads);

    // One phase of a job. q: [rows][query heads][dim], `q_stride` between rows; out: [rows][query heads * dim].
    void run(Pool::Crew& crew, const Plan& plan, const S* q, ptrdiff_t q_stride, CacheLayer<S> cache, int window, S* out);

   private:
    int segments_of(const Tile& tile) const { return divided_up(tile.keys(), kSegment); }
    Partial partial(char* memory, int count) const;
    size_t partial_bytes(int count) const;
    void attend(const Plan& plan, const Tile& tile, int head, int segment, const S* queries, const int* lengths,
                CacheLayer<S> cache, int window, Partial out, char* scratch) const;
    const S* gather(const Tile& tile, int head, const S* q, ptrdiff_t q_stride, S* room) const;
    void whole(const Plan& plan, const Tile& tile, int head, const S* q, ptrdiff_t q_stride, CacheLayer<S> cache, int window,
               S* out, char* scratch) const;
    void finish(const Tile& tile, int head, Partial state, S* out, S* room) const;

    Table<S> table_;
    Heads heads_;
    float scale_;

    struct Unit {
        int tile, segment;
    };
    bool split_ = false;
    std::vector<Unit> units_;               // of one key head, when split
    std::vector<int> first_unit_;           // of each tile, when split
    std::unique_ptr<std::atomic<int>[]> left_;  // segments to do, by tile and key head
    size_t num_left_ = 0;
    std::vector<char> partials_;
    size_t unit_bytes_ = 0;
    std::vector<std::vector<char>> scratch_;  // by thread
};

}  // namespace specserve
