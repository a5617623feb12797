// Attention over a paged cache that Python owns, and the checks of all indices into that cache.
#pragma once

#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/stl/tuple.h>

#include "bindings/bind.hpp"
#include "ops/attention.hpp"
#include "ops/attention_plan.hpp"

namespace specserve {

// All slots of the plan lie in the cache, and no page is shared by two blocks.
inline void check_plan(const AttentionPlan& plan, int64_t rows, int64_t num_slots, int page_slots) {
    if (plan.block_size() % page_slots)
        throw std::invalid_argument("panels need blocks of a multiple of " + std::to_string(page_slots) + "; got " +
                                    std::to_string(plan.block_size()) + ".");
    if (plan.num_rows() != rows)
        throw std::invalid_argument("the plan is for " + std::to_string(plan.num_rows()) + " rows; got " +
                                    std::to_string(rows) + ".");
    if (plan.max_slot() >= num_slots)
        throw std::invalid_argument("the plan's blocks reach slot " + std::to_string(plan.max_slot()) +
                                    "; the cache has " + std::to_string(num_slots) + ".");
}

// Of a layer: its window, its soft cap and its sinks, as in ScoreRules.
using LayerRules = std::tuple<int, float, std::optional<Array>>;

inline ScoreRules checked_rules(const LayerRules& given, int num_heads) {
    const auto& [window, soft_cap, sinks] = given;
    if (window < 0)
        throw std::invalid_argument("window must be at least 0, where 0 is none; got " + std::to_string(window) + ".");
    if (!(soft_cap >= 0.0f) || std::isinf(soft_cap))
        throw std::invalid_argument("soft_cap must be at least 0, where 0 is none; got " + std::to_string(soft_cap) +
                                    ".");
    return {window, soft_cap, sinks ? checked_data<float>(*sinks, "sinks", {num_heads}) : nullptr};
}

inline void check_slots(const int64_t* slots, int64_t count, int64_t num_slots) {
    for (int64_t i = 0; i < count; ++i)
        if (slots[i] < 0 || slots[i] >= num_slots)
            throw std::invalid_argument("slots must be in [0, " + std::to_string(num_slots) + "); got " +
                                        std::to_string(slots[i]) + ".");
}

// The slots of a batch's rows: those of padding rows, which come last, are kNoSlot.
inline void check_row_slots(const int64_t* slots, int64_t rows, int64_t num_slots) {
    while (rows && slots[rows - 1] == kNoSlot) --rows;
    check_slots(slots, rows, num_slots);
}

template <typename S>
class PagedAttention {
   public:
    // cache: [layers, 2, slots, KV heads, head_dim], contiguous from the slots on; a layout in panels interleaves
    // neighbouring slots. With scales it is of int8, and a head has their bytes behind its own.
    PagedAttention(std::shared_ptr<Machine> machine, Array cache, const std::string& layout, int num_heads, float scale,
                   float key_limit, std::vector<LayerRules> rules, int min_key)
        : machine_(std::move(machine)), cache_(std::move(cache)), layout_(find_layout(layout)), data_(checked_cache()),
          heads_{num_heads, static_cast<int>(cache_.shape(3)),
                 static_cast<int>(cache_.shape(4)) - layout_.scale_bytes / layout_.element_bytes},
          key_limit_(key_limit), min_key_(min_key), given_rules_(std::move(rules)),
          attention_(kernel_table<S>(machine_->kernels), layout_, heads_, scale, min_key) {
        if (static_cast<int>(given_rules_.size()) != num_layers())
            throw std::invalid_argument("rules must be of the cache's " + std::to_string(num_layers()) +
                                        " layers; got " + std::to_string(given_rules_.size()) + ".");
        for (const LayerRules& layer : given_rules_) rules_.push_back(checked_rules(layer, num_heads));
        if (min_key < 0)
            throw std::invalid_argument("min_key must be at least 0; got " + std::to_string(min_key) + ".");
        if (heads_.num_kv_heads < 1 || heads_.num_heads < 1 || heads_.num_heads % heads_.num_kv_heads)
            throw std::invalid_argument("num_heads must be a multiple of the KV heads; got " +
                                        std::to_string(num_heads) + " and " + std::to_string(heads_.num_kv_heads) +
                                        ".");
        if (heads_.head_dim < 1 || heads_.head_dim % kVnni<S>)
            throw std::invalid_argument("head_dim must be at least 1 and, in bfloat16, even; got " +
                                        std::to_string(heads_.head_dim) + ".");
        if (layout_.page_slots > 1 && (num_slots() % layout_.page_slots || heads_.head_dim % kLanes))
            throw std::invalid_argument("panels need slots and head_dim that are multiples of " +
                                        std::to_string(kLanes) + "; got " + std::to_string(num_slots()) + " and " +
                                        std::to_string(heads_.head_dim) + ".");
    }

    void forward(int layer, const Array& q, const Array& k, const Array& v, const Array& slots,
                 const AttentionPlan& plan, const Array& out) {
        const S* queries = checked_data<S>(q, "q", {kAny, heads_.num_heads, heads_.head_dim}, 1);
        int64_t rows = static_cast<int64_t>(q.shape(0));
        const S* keys = checked_data<S>(k, "k", {rows, heads_.num_kv_heads, heads_.head_dim}, 1);
        const S* values = checked_data<S>(v, "v", {rows, heads_.num_kv_heads, heads_.head_dim}, 1);
        const int64_t* new_slots = checked_data<int64_t>(slots, "slots", {rows});
        S* outputs = checked_data<S>(out, "out", {rows, heads_.num_heads, heads_.head_dim});
        if (layer < 0 || layer >= static_cast<int>(cache_.shape(0)))
            throw std::invalid_argument("layer must be in [0, " + std::to_string(cache_.shape(0)) + "); got " +
                                        std::to_string(layer) + ".");
        check_plan(plan, rows, num_slots(), layout_.page_slots);
        check_row_slots(new_slots, rows, num_slots());
        nb::gil_scoped_release no_gil;
        if (rows == 0) return;
        std::lock_guard lock(mutex_);
        KVCacheLayer cache = cache_layer(layer);
        attention_.prepare(plan, machine_->pool->size());
        run_kernels(*machine_->pool, kernel_table<S>(machine_->kernels), 2, [&](ThreadPool::Team& team) {
            team.parallel_for(heads_.num_kv_heads * static_cast<int>(rows), [&](int task) {
                ptrdiff_t r = task % rows, head = task / rows, offset = head * heads_.head_dim;
                if (new_slots[r] != kNoSlot)
                    layout_.store_kv(keys + r * k.stride(0) + offset, values + r * v.stride(0) + offset, cache,
                                     static_cast<int>(head), new_slots[r], key_limit_);
            });
            attention_.run(team, plan, queries, q.stride(0), cache, rules(layer), outputs);
        });
    }

    // Moves tokens to other slots, in every layer, as if all were read before any is written.
    void move_slots(const std::vector<int64_t>& source, const std::vector<int64_t>& target) {
        if (source.size() != target.size()) throw std::invalid_argument("source and target must have the same length.");
        check_slots(source.data(), static_cast<int64_t>(source.size()), num_slots());
        check_slots(target.data(), static_cast<int64_t>(target.size()), num_slots());
        nb::gil_scoped_release no_gil;
        std::lock_guard lock(mutex_);
        size_t bytes = static_cast<size_t>(layout_.head_bytes(heads_.head_dim));
        std::vector<char> keys(source.size() * bytes), values(source.size() * bytes);
        for (int layer = 0; layer < num_layers(); ++layer)
            for (int h = 0; h < heads_.num_kv_heads; ++h) {
                for (size_t i = 0; i < source.size(); ++i)
                    layout_.read_slot(cache_layer(layer), h, source[i], &keys[i * bytes], &values[i * bytes]);
                for (size_t i = 0; i < target.size(); ++i)
                    layout_.write_slot(&keys[i * bytes], &values[i * bytes], cache_layer(layer), h, target[i]);
            }
    }

    KVCacheLayer cache_layer(int layer) const {
        char* keys = data_ + layer * cache_.stride(0) * layout_.element_bytes;
        return {keys, keys + cache_.stride(1) * layout_.element_bytes, heads_.num_kv_heads, heads_.head_dim,
                layout_.head_bytes(heads_.head_dim)};
    }
    const KVLayout<S>& layout() const { return layout_; }
    int64_t num_slots() const { return static_cast<int64_t>(cache_.shape(2)); }
    int num_layers() const { return static_cast<int>(cache_.shape(0)); }
    const HeadShape& heads() const { return heads_; }
    float key_limit() const { return key_limit_; }
    int min_key() const { return min_key_; }
    const ScoreRules& rules(int layer) const { return rules_[static_cast<size_t>(layer)]; }
    int tile_rows() const { return rows_per_tile(heads_); }

   private:
    const KVLayout<S>& find_layout(const std::string& name) const {
        const KernelTable<S>& table = kernel_table<S>(machine_->kernels);
        if (name == "by_slot") return table.by_slot;
        if (name == "panels") return table.in_panels;
        if (name == "by_slot-int8") return table.by_slot_int8;
        if (name == "panels-int8") return table.in_panels_int8;
        throw std::invalid_argument("layout must be by_slot, panels, by_slot-int8 or panels-int8; got " + name + ".");
    }
    char* checked_cache() const {
        const std::vector<int64_t> shape{kAny, 2, kAny, kAny, kAny};
        if (layout_.scale_bytes) return reinterpret_cast<char*>(checked_data<int8_t>(cache_, "cache", shape, 2));
        return reinterpret_cast<char*>(checked_data<S>(cache_, "cache", shape, 2));
    }

    std::shared_ptr<Machine> machine_;
    Array cache_;
    KVLayout<S> layout_;
    char* data_;
    HeadShape heads_;
    float key_limit_;
    int min_key_;
    std::vector<LayerRules> given_rules_;  // which own the sinks
    std::vector<ScoreRules> rules_;        // by layer
    std::mutex mutex_;                     // calls share the workspaces of attention_
    Attention<S> attention_;
};

}  // namespace specserve
