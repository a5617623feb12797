// Attention over a paged cache that Python holds, and the checks of what reaches into that cache.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "ops/attention.hpp"
#include "bindings/bind.hpp"
#include "ops/attention_plan.hpp"

namespace specserve {

// The proof that a plan's slots lie in the cache, and its blocks as the layout mixes slots.
inline void check_plan(const Plan& plan, int64_t rows, int64_t slots, int together) {
    if (plan.block_size() % together)
        throw std::invalid_argument("panels need blocks of a multiple of " + std::to_string(together) + "; got " +
                                    std::to_string(plan.block_size()) + ".");
    if (plan.num_rows() != rows)
        throw std::invalid_argument("the plan is for " + std::to_string(plan.num_rows()) + " rows; got " +
                                    std::to_string(rows) + ".");
    if (plan.highest_slot() >= slots)
        throw std::invalid_argument("the plan's blocks reach slot " + std::to_string(plan.highest_slot()) +
                                    "; the cache has " + std::to_string(slots) + ".");
}

inline void check_window(int window) {
    if (window < 0)
        throw std::invalid_argument("window must be at least 0, which is none; got " + std::to_string(window) + ".");
}

inline void check_slots(const int64_t* at, int64_t count, int64_t slots) {
    for (int64_t i = 0; i < count; ++i)
        if (at[i] < 0 || at[i] >= slots)
            throw std::invalid_argument("slots must be in [0, " + std::to_string(slots) + "); got " +
                                        std::to_string(at[i]) + ".");
}

template <typename S>
class PagedAttention {
   public:
    // cache: [layers, 2, slots, key heads, dim], where the layout does not reorder the numbers of neighbouring slots
    PagedAttention(std::shared_ptr<Machine> machine, Array cache, const std::string& layout, int query_heads,
                   float scale, float key_limit)
        : machine_(std::move(machine)), cache_(std::move(cache)),
          at_(numbers<S>(cache_, "cache", {kAny, 2, kAny, kAny, kAny})),
          heads_{query_heads, static_cast<int>(cache_.shape(3)), static_cast<int>(cache_.shape(4))},
          key_limit_(key_limit), layout_(named(layout)),
          attention_(table_of<S>(machine_->kernels), layout_, heads_, scale) {
        if (heads_.keys < 1 || heads_.queries < 1 || heads_.queries % heads_.keys)
            throw std::invalid_argument("query heads must be a multiple of key heads; got " +
                                        std::to_string(query_heads) + " and " + std::to_string(heads_.keys) + ".");
        if (heads_.dim < 1 || heads_.dim % kStep<S>)
            throw std::invalid_argument("head_dim must be at least 1 and, in bfloat16, even; got " +
                                        std::to_string(heads_.dim) + ".");
        if (layout_.slots > 1 && (num_slots() % layout_.slots || heads_.dim % kLanes))
            throw std::invalid_argument("panels need slots and head_dim that are multiples of " +
                                        std::to_string(kLanes) + "; got " + std::to_string(num_slots()) + " and " +
                                        std::to_string(heads_.dim) + ".");
    }

    void run(int layer, const Array& q, const Array& k, const Array& v, const Array& slots, const Plan& plan,
             int window, const Array& out) {
        const S* queries = numbers<S>(q, "q", {kAny, heads_.queries, heads_.dim}, 1);
        int64_t rows = static_cast<int64_t>(q.shape(0));
        const S* keys = numbers<S>(k, "k", {rows, heads_.keys, heads_.dim}, 1);
        const S* values = numbers<S>(v, "v", {rows, heads_.keys, heads_.dim}, 1);
        const int64_t* places = numbers<int64_t>(slots, "slots", {rows});
        S* to = numbers<S>(out, "out", {rows, heads_.queries, heads_.dim});
        if (layer < 0 || layer >= static_cast<int>(cache_.shape(0)))
            throw std::invalid_argument("layer must be in [0, " + std::to_string(cache_.shape(0)) + "); got " +
                                        std::to_string(layer) + ".");
        check_window(window);
        check_plan(plan, rows, num_slots(), layout_.slots);
        check_slots(places, rows, num_slots());
        nb::gil_scoped_release free;
        if (rows == 0) return;
        std::lock_guard alone(busy_);
        CacheLayer<S> cache = layer_of(layer);
        attention_.prepare(plan, machine_->pool->size());
        machine_->pool->run(2, [&](Pool::Crew& crew) {
            crew.share(heads_.keys * static_cast<int>(rows), [&](int task) {
                ptrdiff_t r = task % rows, head = task / rows, at = head * heads_.dim;
                layout_.keep(keys + r * k.stride(0) + at, values + r * v.stride(0) + at, cache, static_cast<int>(head),
                             places[r], key_limit_);
            });
            attention_.run(crew, plan, queries, q.stride(0), cache, window, to);
        });
    }

    // Tokens to other slots, in every layer, as if all were read before any is written.
    void move(const std::vector<int64_t>& source, const std::vector<int64_t>& target) {
        if (source.size() != target.size())
            throw std::invalid_argument("source and target must have as many slots as each other.");
        check_slots(source.data(), static_cast<int64_t>(source.size()), num_slots());
        check_slots(target.data(), static_cast<int64_t>(target.size()), num_slots());
        nb::gil_scoped_release free;
        std::lock_guard alone(busy_);
        size_t size = static_cast<size_t>(heads_.dim);
        std::vector<S> keys(source.size() * size), values(source.size() * size);
        for (int layer = 0; layer < num_layers(); ++layer)
            for (int h = 0; h < heads_.keys; ++h) {
                for (size_t i = 0; i < source.size(); ++i)
                    layout_.take(layer_of(layer), h, source[i], &keys[i * size], &values[i * size]);
                for (size_t i = 0; i < target.size(); ++i)
                    layout_.keep(&keys[i * size], &values[i * size], layer_of(layer), h, target[i], key_limit_);
            }
    }

    CacheLayer<S> layer_of(int layer) const {
        int64_t size = num_slots() * heads_.keys * heads_.dim;
        return {at_ + 2 * layer * size, at_ + (2 * layer + 1) * size, heads_.keys, heads_.dim};
    }
    const Layout<S>& layout() const { return layout_; }
    int64_t num_slots() const { return static_cast<int64_t>(cache_.shape(2)); }
    int num_layers() const { return static_cast<int>(cache_.shape(0)); }
    const Heads& heads() const { return heads_; }
    float key_limit() const { return key_limit_; }
    int tile_rows() const { return rows_per_tile(heads_); }

   private:
    const Layout<S>& named(const std::string& name) const {
        const Table<S>& table = table_of<S>(machine_->kernels);
        if (name == "by_slot") return table.by_slot;
        if (name == "panels") return table.in_panels;
        throw std::invalid_argument("layout must be by_slot or panels; got " + name + ".");
    }

    std::shared_ptr<Machine> machine_;
    Array cache_;
    S* at_;
    Heads heads_;
    float key_limit_;
    Layout<S> layout_;
    std::mutex busy_;  // one batch at a time: its memory is the object's
    Attention<S> attention_;
};

}  // namespace specserve
