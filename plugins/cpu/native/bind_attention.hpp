// Attention over a paged cache that Python holds, and the checks of what reaches into that cache.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "attention.hpp"
#include "bind.hpp"
#include "plan.hpp"

namespace specserve {

// A plan and the proof that its slots lie in the cache.
inline void check_plan(const Plan& plan, int64_t rows, int64_t slots) {
    if (plan.num_rows() != rows)
        throw std::invalid_argument("the plan is for " + std::to_string(plan.num_rows()) + " rows; got " + std::to_string(rows) + ".");
    if (plan.highest_slot() >= slots)
        throw std::invalid_argument("the plan's blocks reach slot " + std::to_string(plan.highest_slot()) + "; the cache has " +
                                    std::to_string(slots) + ".");
}

inline void check_window(int window) {
    if (window < 0) throw std::invalid_argument("window must be at least 0, which is none; got " + std::to_string(window) + ".");
}

inline void check_slots(const int64_t* at, int64_t count, int64_t slots) {
    for (int64_t i = 0; i < count; ++i)
        if (at[i] < 0 || at[i] >= slots)
            throw std::invalid_argument("slots must be in [0, " + std::to_string(slots) + "); got " + std::to_string(at[i]) + ".");
}

template <typename S>
class PagedAttention {
   public:
    // cache: [layers, 2, slots, key heads, dim]
    PagedAttention(std::shared_ptr<Machine> machine, Array cache, int query_heads, float scale, float key_limit)
        : machine_(std::move(machine)), cache_(std::move(cache)),
          at_(numbers<S>(cache_, "cache", {kAny, 2, kAny, kAny, kAny})),
          heads_{query_heads, static_cast<int>(cache_.shape(3)), static_cast<int>(cache_.shape(4))}, key_limit_(key_limit),
          attention_(table_of<S>(machine_->kernels), heads_, scale) {
        if (heads_.keys < 1 || heads_.queries < 1 || heads_.queries % heads_.keys)
            throw std::invalid_argument("query heads must be a multiple of key heads; got " + std::to_string(query_heads) + " and " +
                                        std::to_string(heads_.keys) + ".");
        if (heads_.dim < 1 || heads_.dim % kStep<S>)
            throw std::invalid_argument("head_dim must be at least 1 and, in bfloat16, even; got " + std::to_string(heads_.dim) + ".");
    }

    void run(int layer, const Array& q, const Array& k, const Array& v, const Array& slots, const Plan& plan, int window, const Array& out) {
        const S* queries = numbers<S>(q, "q", {kAny, heads_.queries, heads_.dim}, 1);
        int64_t rows = static_cast<int64_t>(q.shape(0));
        const S* keys = numbers<S>(k, "k", {rows, heads_.keys, heads_.dim}, 1);
        const S* values = numbers<S>(v, "v", {rows, heads_.keys, heads_.dim}, 1);
        const int64_t* places = numbers<int64_t>(slots, "slots", {rows});
        S* to = numbers<S>(out, "out", {rows, heads_.queries, heads_.dim});
        if (layer < 0 || layer >= static_cast<int>(cache_.shape(0)))
            throw std::invalid_argument("layer must be in [0, " + std::to_string(cache_.shape(0)) + "); got " + std::to_string(layer) + ".");
        check_window(window);
        check_plan(plan, rows, num_slots());
        check_slots(places, rows, num_slots());
        const Table<S>& table = table_of<S>(machine_->kernels);
        nb::gil_scoped_release free;
        if (rows == 0) return;
        std::lock_guard alone(busy_);
        CacheLayer<S> cache = layer_of(layer);
        int size = heads_.keys * heads_.dim;
        attention_.prepare(plan, machine_->pool->size());
        machine_->pool->run(2, [&](Pool::Crew& crew) {
            crew.share(static_cast<int>(rows), [&](int r) {
                table.keep_finite(keys + r * k.stride(0), cache.keys + places[r] * size, size, key_limit_);
                table.keep_finite(values + r * v.stride(0), cache.values + places[r] * size, size, __builtin_inff());
            });
            attention_.run(crew, plan, queries, q.stride(0), cache, window, to);
        });
    }

    CacheLayer<S> layer_of(int layer) const {
        int64_t size = num_slots() * heads_.keys * heads_.dim;
        return {at_ + 2 * layer * size, at_ + (2 * layer + 1) * size};
    }
    int64_t num_slots() const { return static_cast<int64_t>(cache_.shape(2)); }
    int num_layers() const { return static_cast<int>(cache_.shape(0)); }
    const Heads& heads() const { return heads_; }
    float key_limit() const { return key_limit_; }
    int tile_rows() const { return rows_per_tile(heads_); }

   private:
    std::shared_ptr<Machine> machine_;
    Array cache_;
    S* at_;
    Heads heads_;
    float key_limit_;
    std::mutex busy_;  // one batch at a time: its memory is the object's
    Attention<S> attention_;
};

}  // namespace specserve
