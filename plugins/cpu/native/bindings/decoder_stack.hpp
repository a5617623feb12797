// The decoder's layers in one call.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <nanobind/stl/tuple.h>

#include "bindings/attention.hpp"
#include "bindings/decoder_weights.hpp"
#include "bindings/lowrank.hpp"
#include "bindings/routing.hpp"
#include "ops/decoder_stack.hpp"

namespace specserve {

template <typename S>
class PyDecoderStack {
   public:
    using HeadSizes = std::tuple<int, int, int>;  // query heads, KV heads, head_dim
    using Segments = std::vector<PackedSegment<S>>;
    // A layer; the tensor that it is copied to, at which row and column of it.
    using Taps = std::vector<std::tuple<int, Array, int64_t, int64_t>>;

    // Without `attention`, another backend runs between `pre_attention` and `post_attention`, and `forward` throws.
    PyDecoderStack(std::shared_ptr<Machine> machine, std::optional<std::shared_ptr<PagedAttention<S>>> attention,
                   HeadSizes heads, std::vector<LayerWeights<S>> layers, std::optional<Array> final_norm,
                   std::shared_ptr<PackedLinear<S>> lm_head, int64_t positions, float eps, float scale,
                   const ActivationNumbers& activation, float residual, const std::optional<RoutingNumbers>& routing)
        : machine_(std::move(machine)), attention_(attention ? std::move(*attention) : nullptr),
          layers_(std::move(layers)), final_norm_(std::move(final_norm)), lm_head_(std::move(lm_head)),
          positions_(positions), hidden_size_(lm_head_->linear().in_features),
          shape_(make_shape(heads, eps, scale, activation, residual, routing)), stack_(make_stack()) {}

    void forward(const Array& x, const Array& positions, const Array& slots, const AttentionPlan& plan,
                 const Segments& adapters, const std::optional<Array>& aux, const Taps& taps, nb::handle runs) {
        S* hidden = checked_data<S>(x, "x", {kAny, hidden_size_});
        int64_t rows = static_cast<int64_t>(x.shape(0));
        const int64_t* row_positions = checked_positions(positions, rows);
        const int64_t* row_slots = checked_slots(slots, rows);
        check_plan_of(plan, rows);
        auto segments = checked_segments(adapters, rows);
        const S* aux_rows = checked_aux(aux, rows);
        auto outputs = checked_taps(taps, rows);
        std::vector<int64_t> numbers;
        append(runs, "runs", kAny, numbers);
        nb::gil_scoped_release no_gil;
        std::lock_guard lock(mutex_);
        auto own_runs = read_runs(numbers, static_cast<int>(rows));
        if (rows) stack_.forward(hidden, row_positions, row_slots, plan, segments, aux_rows, outputs, own_runs);
    }

    void pre_attention(int layer, const Array& x, const Array& positions, const Segments& adapters,
                       const std::optional<Array>& aux, const Array& qkv, const std::optional<Array>& gates) {
        const S* hidden = checked_data<S>(x, "x", {kAny, hidden_size_});
        int64_t rows = static_cast<int64_t>(x.shape(0));
        const int64_t* row_positions = checked_positions(positions, rows);
        check_layer(layer);
        S* out = checked_data<S>(qkv, "qkv", {rows, stack_.mixer_inputs(layer)});
        S* of_gates = checked_gates(layer, gates, rows);
        auto segments = checked_segments(adapters, rows);
        const S* aux_rows = checked_aux(aux, rows);
        nb::gil_scoped_release no_gil;
        std::lock_guard lock(mutex_);
        if (rows)
            stack_.pre_attention(layer, hidden, row_positions, static_cast<int>(rows), segments, aux_rows,
                                 {out, of_gates});
    }

    void post_attention(int layer, const Array& x, const Array& attention_out, const std::optional<Array>& gates,
                        const Segments& adapters) {
        S* hidden = checked_data<S>(x, "x", {kAny, hidden_size_});
        int64_t rows = static_cast<int64_t>(x.shape(0));
        check_layer(layer);
        const S* attended = checked_data<S>(attention_out, "attention_out", {rows, stack_.mixer_outputs(layer)});
        const S* of_gates = checked_gates(layer, gates, rows);
        auto segments = checked_segments(adapters, rows);
        nb::gil_scoped_release no_gil;
        std::lock_guard lock(mutex_);
        if (rows) stack_.post_attention(layer, hidden, attended, of_gates, static_cast<int>(rows), segments);
    }

    void logits(const Array& x, const std::optional<Array>& rows, const Array& out) {
        const S* hidden = checked_data<S>(x, "x", {kAny, hidden_size_});
        int64_t count = static_cast<int64_t>(rows ? rows->shape(0) : x.shape(0));
        const int64_t* indices = rows ? checked_rows(*rows, static_cast<int64_t>(x.shape(0))) : nullptr;
        float* to = checked_data<float>(out, "out", {count, lm_head_->linear().out_features});
        nb::gil_scoped_release no_gil;
        std::lock_guard lock(mutex_);
        if (count) stack_.logits(hidden, indices, static_cast<int>(count), to);
    }

    // For a draft head over these layers.
    DecoderStack<S>& stack() { return stack_; }
    std::mutex& mutex() { return mutex_; }
    int hidden_size() const { return hidden_size_; }
    int kv_size() const { return shape_.kv_size(); }
    int num_logits() const { return lm_head_->linear().out_features; }
    float eps() const { return shape_.eps; }
    const S* final_norm() const { return checked_rounded_norm<S>(final_norm_, hidden_size_); }
    bool reads_aux() const {
        return std::any_of(layers_.begin(), layers_.end(),
                           [](const LayerWeights<S>& layer) { return layer.aux_norm.has_value(); });
    }
    const int64_t* checked_positions(const Array& positions, int64_t rows) const {
        const int64_t* data = checked_data<int64_t>(positions, "positions", {rows});
        for (int64_t i = 0; i < rows; ++i)
            if (data[i] < 0 || data[i] >= positions_)
                throw std::invalid_argument("positions must be in [0, " + std::to_string(positions_) + "); got " +
                                            std::to_string(data[i]) + ".");
        return data;
    }
    bool has_mixers_or_gates() const {
        return std::any_of(layers_.begin(), layers_.end(), [](const LayerWeights<S>& layer) {
            return !layer.attends() || layer.gate || layer.gates_in_qkv;
        });
    }
    int64_t num_positions() const { return positions_; }
    int num_layers() const { return static_cast<int>(layers_.size()); }
    const int64_t* checked_slots(const Array& slots, int64_t rows) const {
        const int64_t* data = checked_data<int64_t>(slots, "slots", {rows});
        if (!attention_)
            throw std::invalid_argument(
                "the layers were made without attention: use pre_attention and post_attention.");
        check_row_slots(data, rows, attention_->num_slots());
        return data;
    }
    void check_plan_of(const AttentionPlan& plan, int64_t rows) const {
        check_plan(plan, rows, attention_->num_slots(), attention_->layout().page_slots);
    }
    static const int64_t* checked_rows(const Array& rows, int64_t num_rows) {
        int64_t count = static_cast<int64_t>(rows.shape(0));
        const int64_t* data = checked_data<int64_t>(rows, "rows", {count});
        for (int64_t i = 0; i < count; ++i)
            if (data[i] < 0 || data[i] >= num_rows)
                throw std::invalid_argument("rows must be in [0, " + std::to_string(num_rows) + "); got " +
                                            std::to_string(data[i]) + ".");
        return data;
    }

   private:
    DecoderShape make_shape(HeadSizes sizes, float eps, float scale, const ActivationNumbers& activation,
                            float residual, const std::optional<RoutingNumbers>& routing) const {
        auto [num_heads, num_kv_heads, head_dim] = sizes;
        HeadShape heads{num_heads, num_kv_heads, head_dim};
        if (num_kv_heads < 1 || num_heads < num_kv_heads || num_heads % num_kv_heads || head_dim < 1)
            throw std::invalid_argument("num_heads must be a multiple of the KV heads; got " +
                                        std::to_string(num_heads) + " and " + std::to_string(num_kv_heads) + ".");
        if (attention_ && !(attention_->heads() == heads))
            throw std::invalid_argument("heads must be those of the attention.");
        DecoderShape shape{};
        shape.hidden_size = hidden_size_;
        for (const LayerWeights<S>& layer : layers_) {
            if (layer.down) shape.intermediate_size = (*layer.down)->linear().in_features;
            if (!layer.experts.empty()) shape.expert_size = layer.experts[0].second->linear().in_features;
        }
        if (routing) shape.routing = checked_routing(*routing);
        shape.heads = heads;
        shape.eps = eps;
        shape.scale = scale;
        shape.key_limit = attention_ ? attention_->key_limit() : 0.0f;
        shape.min_key = attention_ ? attention_->min_key() : 0;
        shape.activation = checked_activation(activation);
        shape.residual = residual;
        return shape;
    }

    DecoderStack<S> make_stack() const {
        auto attending =
            std::count_if(layers_.begin(), layers_.end(), [](const LayerWeights<S>& layer) { return layer.attends(); });
        if (attention_ && attending > attention_->num_layers())
            throw std::invalid_argument("layers with attention must be at most the cache's " +
                                        std::to_string(attention_->num_layers()) + "; got " +
                                        std::to_string(attending) + ".");
        check_deltas(layers_, *machine_);
        std::vector<DecoderLayer<S>> layers;
        int place = 0;  // in the cache
        for (const LayerWeights<S>& weights : layers_) {
            layers.push_back(to_decoder_layer(weights, shape_, positions_));
            if (attention_ && weights.conv) check_kept(weights.kept);
            if (!attention_ || !weights.attends()) continue;
            layers.back().cache = attention_->cache_layer(place);
            layers.back().rules = attention_->rules(place++);
        }
        const KernelTable<S>& table = kernel_table<S>(machine_->kernels);
        NormWeight<S> final_norm = checked_norm<S>(final_norm_, hidden_size_);
        return DecoderStack<S>(table, attention_ ? attention_->layout() : table.by_slot, machine_->pool, shape_,
                               std::move(layers), final_norm, lm_head_->linear());
    }

    // By layer: the runs of gated delta nets.
    std::vector<std::vector<DeltaRun<S>>> read_runs(const std::vector<int64_t>& numbers, int rows) {
        std::vector<std::vector<DeltaRun<S>>> runs(layers_.size());
        stack_.reserve(rows);
        for (int i = 0; i < num_layers(); ++i) {
            const LayerWeights<S>& layer = layers_[static_cast<size_t>(i)];
            if (!layer.delta) continue;
            runs[static_cast<size_t>(i)] = (*layer.delta)
                                               ->read_runs(numbers, stack_.mixer_rows(i, rows), stack_.mixed_rows(),
                                                           {*layer.states, *layer.trails, *layer.updates});
        }
        return runs;
    }

    // Every slot of a plan is a slot of it.
    void check_kept(const std::optional<Array>& kept) const {
        int64_t slots = kept ? static_cast<int64_t>(kept->shape(0)) : 0;
        if (slots != attention_->num_slots())
            throw std::invalid_argument("kept must be of the cache's " + std::to_string(attention_->num_slots()) +
                                        " slots; got " + std::to_string(slots) + ".");
    }

    const S* checked_aux(const std::optional<Array>& aux, int64_t rows) const {
        bool is_read = reads_aux();
        if (is_read != aux.has_value())
            throw std::invalid_argument(is_read ? "aux must be given: a layer has an auxiliary norm."
                                                : "aux must be None: no layer has an auxiliary norm.");
        return aux ? checked_data<S>(*aux, "aux", {rows, hidden_size_}) : nullptr;
    }

    // Null where the layer has none.
    S* checked_gates(int layer, const std::optional<Array>& gates, int64_t rows) const {
        int count = stack_.num_gates(layer);
        if (gates.has_value() != (count > 0))
            throw std::invalid_argument(count ? "gates must be given: the layer's attention has " +
                                                    std::to_string(count) + "."
                                              : "gates must be None: the layer's attention has none.");
        return gates ? checked_data<S>(*gates, "gates", {rows, count}) : nullptr;
    }

    std::vector<LayerTap<S>> checked_taps(const Taps& taps, int64_t rows) const {
        std::vector<LayerTap<S>> outputs;
        for (const auto& [layer, out, row, column] : taps) {
            if (layer < 0 || layer > static_cast<int>(layers_.size()))
                throw std::invalid_argument("taps must be of layers in [0, " + std::to_string(layers_.size()) +
                                            "]; got " + std::to_string(layer) + ".");
            S* to = checked_data<S>(out, "tap", {kAny, kAny}, 1);
            int64_t last_row = static_cast<int64_t>(out.shape(0)) - rows;
            int64_t last_column = static_cast<int64_t>(out.shape(1)) - hidden_size_;
            if (row < 0 || row > last_row || column < 0 || column > last_column)
                throw std::invalid_argument("a tap of [" + std::to_string(rows) + ", " + std::to_string(hidden_size_) +
                                            "] at row " + std::to_string(row) + ", column " + std::to_string(column) +
                                            " must lie in its tensor; got " + shape_string(out) + ".");
            outputs.push_back({layer, to + row * out.stride(0) + column, out.stride(0)});
        }
        return outputs;
    }

    void check_layer(int layer) const {
        if (layer < 0 || layer >= static_cast<int>(layers_.size()))
            throw std::invalid_argument("layer must be in [0, " + std::to_string(layers_.size()) + "); got " +
                                        std::to_string(layer) + ".");
    }

    typename DecoderStack<S>::Segments checked_segments(const Segments& adapters, int64_t rows) const {
        int inter = shape_.intermediate_size;
        typename DecoderStack<S>::Segments segments;
        for (const auto& [begin, end, adapter] : adapters) {
            check_segment(begin, end, rows);
            adapter->check(static_cast<int>(layers_.size()), [&](int layer) -> LayerSizes {
                return {{hidden_size_, stack_.qkv_outputs(layer)},
                        {stack_.mixer_outputs(layer), hidden_size_},
                        {hidden_size_, 2 * inter},
                        {inter, hidden_size_},
                        {hidden_size_, shape_.routing.count},
                        {hidden_size_, stack_.num_gates(layer)},
                        {hidden_size_, 2 * shape_.expert_size},
                        {shape_.expert_size, hidden_size_}};
            });
            segments.push_back({begin, end, &adapter->adapter()});
        }
        return segments;
    }

    std::shared_ptr<Machine> machine_;
    std::shared_ptr<PagedAttention<S>> attention_;
    std::vector<LayerWeights<S>> layers_;
    std::optional<Array> final_norm_;
    std::shared_ptr<PackedLinear<S>> lm_head_;
    std::mutex mutex_;
    int64_t positions_;  // that there are angles for
    int hidden_size_;
    DecoderShape shape_;
    DecoderStack<S> stack_;
};

}  // namespace specserve
