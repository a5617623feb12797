// The decoder's layers in one call.
#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <nanobind/stl/tuple.h>

#include "bindings/attention.hpp"
#include "bindings/decoder_weights.hpp"
#include "bindings/lowrank.hpp"
#include "ops/decoder_stack.hpp"

namespace specserve {

namespace {

template <typename S>
class PyDecoderStack {
   public:
    using HeadSizes = std::tuple<int, int, int>;  // query heads, KV heads, head_dim
    using Segments = std::vector<PackedSegment<S>>;
    using Taps = std::vector<std::tuple<int, Array>>;

    // Without `attention`, another backend runs between `pre_attention` and `post_attention`, and `forward` throws.
    PyDecoderStack(std::shared_ptr<Machine> machine, std::optional<std::shared_ptr<PagedAttention<S>>> attention,
                   HeadSizes heads, std::vector<LayerWeights<S>> layers, std::optional<Array> final_norm,
                   std::shared_ptr<PackedLinear<S>> lm_head, Array cos, Array sin, float eps, float scale)
        : machine_(std::move(machine)), attention_(attention ? std::move(*attention) : nullptr),
          layers_(std::move(layers)), final_norm_(std::move(final_norm)), lm_head_(std::move(lm_head)),
          cos_(std::move(cos)), sin_(std::move(sin)), hidden_size_(lm_head_->linear().in_features),
          shape_(make_shape(heads, eps, scale)), stack_(make_stack()) {}

    void forward(const Array& x, const Array& positions, const Array& slots, const AttentionPlan& plan,
                 const Segments& adapters, const std::optional<Array>& side, const Taps& taps) {
        S* hidden = checked_data<S>(x, "x", {kAny, hidden_size_});
        int64_t rows = static_cast<int64_t>(x.shape(0));
        const int64_t* row_positions = checked_positions(positions, rows);
        const int64_t* row_slots = checked_data<int64_t>(slots, "slots", {rows});
        if (!attention_)
            throw std::invalid_argument(
                "the layers were made without attention: use pre_attention and post_attention.");
        check_plan(plan, rows, attention_->num_slots(), attention_->layout().page_slots);
        check_slots(row_slots, rows, attention_->num_slots());
        auto segments = checked_segments(adapters, rows);
        const S* side_rows = checked_side(side, rows);
        auto outputs = checked_taps(taps, rows);
        nb::gil_scoped_release no_gil;
        std::lock_guard lock(mutex_);
        if (rows) stack_.forward(hidden, row_positions, row_slots, plan, segments, side_rows, outputs);
    }

    void pre_attention(int layer, const Array& x, const Array& positions, const Segments& adapters,
                       const std::optional<Array>& side, const Array& qkv) {
        const S* hidden = checked_data<S>(x, "x", {kAny, hidden_size_});
        int64_t rows = static_cast<int64_t>(x.shape(0));
        const int64_t* row_positions = checked_positions(positions, rows);
        S* out = checked_data<S>(qkv, "qkv", {rows, shape_.qkv_size()});
        check_layer(layer);
        auto segments = checked_segments(adapters, rows);
        const S* side_rows = checked_side(side, rows);
        nb::gil_scoped_release no_gil;
        std::lock_guard lock(mutex_);
        if (rows) stack_.pre_attention(layer, hidden, row_positions, static_cast<int>(rows), segments, side_rows, out);
    }

    void post_attention(int layer, const Array& x, const Array& attention_out, const Segments& adapters) {
        S* hidden = checked_data<S>(x, "x", {kAny, hidden_size_});
        int64_t rows = static_cast<int64_t>(x.shape(0));
        const S* attended = checked_data<S>(attention_out, "attention_out", {rows, shape_.q_size()});
        check_layer(layer);
        auto segments = checked_segments(adapters, rows);
        nb::gil_scoped_release no_gil;
        std::lock_guard lock(mutex_);
        if (rows) stack_.post_attention(layer, hidden, attended, static_cast<int>(rows), segments);
    }

    void logits(const Array& x, const std::optional<Array>& rows, const Array& out) {
        const S* hidden = checked_data<S>(x, "x", {kAny, hidden_size_});
        int64_t count = static_cast<int64_t>(rows ? rows->shape(0) : x.shape(0));
        const int64_t* indices = rows ? checked_data<int64_t>(*rows, "rows", {count}) : nullptr;
        for (int64_t i = 0; indices && i < count; ++i)
            if (indices[i] < 0 || indices[i] >= static_cast<int64_t>(x.shape(0)))
                throw std::invalid_argument("rows must be in [0, " + std::to_string(x.shape(0)) + "); got " +
                                            std::to_string(indices[i]) + ".");
        float* to = checked_data<float>(out, "out", {count, lm_head_->linear().out_features});
        nb::gil_scoped_release no_gil;
        std::lock_guard lock(mutex_);
        if (count) stack_.logits(hidden, indices, static_cast<int>(count), to);
    }

   private:
    DecoderShape make_shape(HeadSizes sizes, float eps, float scale) const {
        auto [num_heads, num_kv_heads, head_dim] = sizes;
        HeadShape heads{num_heads, num_kv_heads, head_dim};
        if (num_kv_heads < 1 || num_heads < num_kv_heads || num_heads % num_kv_heads || head_dim < 1)
            throw std::invalid_argument("num_heads must be a multiple of the KV heads; got " +
                                        std::to_string(num_heads) + " and " + std::to_string(num_kv_heads) + ".");
        if (attention_ && !(attention_->heads() == heads))
            throw std::invalid_argument("heads must be those of the attention.");
        const float* cos = checked_data<float>(cos_, "cos", {kAny, 1, kAny});
        int rotary_dim = static_cast<int>(cos_.shape(2));
        check_rotary_dim(cos_, head_dim);
        DecoderShape shape{};
        shape.hidden_size = hidden_size_;
        shape.intermediate_size = layers_.empty() ? 0 : layers_[0].down->linear().in_features;
        shape.heads = heads;
        shape.eps = eps;
        shape.scale = scale;
        shape.key_limit = attention_ ? attention_->key_limit() : 0.0f;
        shape.min_key = attention_ ? attention_->min_key() : 0;
        shape.rotary_dim = rotary_dim;
        shape.cos = cos;
        shape.sin = checked_data<float>(sin_, "sin", {static_cast<int64_t>(cos_.shape(0)), 1, rotary_dim});
        return shape;
    }

    DecoderStack<S> make_stack() const {
        if (attention_ && static_cast<int>(layers_.size()) > attention_->num_layers())
            throw std::invalid_argument("layers must be at most the cache's " +
                                        std::to_string(attention_->num_layers()) + "; got " +
                                        std::to_string(layers_.size()) + ".");
        std::vector<DecoderLayer<S>> layers;
        for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
            layers.push_back(to_decoder_layer(layers_[static_cast<size_t>(i)], shape_));
            if (attention_) layers.back().cache = attention_->cache_layer(i);
        }
        const KernelTable<S>& table = kernel_table<S>(machine_->kernels);
        const S* final_norm = checked_norm<S>(final_norm_, hidden_size_);
        return DecoderStack<S>(table, attention_ ? attention_->layout() : table.by_slot, machine_->pool, shape_,
                               std::move(layers), final_norm, lm_head_->linear());
    }

    const int64_t* checked_positions(const Array& positions, int64_t rows) const {
        const int64_t* data = checked_data<int64_t>(positions, "positions", {rows});
        for (int64_t i = 0; i < rows; ++i)
            if (data[i] < 0 || data[i] >= static_cast<int64_t>(cos_.shape(0)))
                throw std::invalid_argument("positions must be in [0, " + std::to_string(cos_.shape(0)) + "); got " +
                                            std::to_string(data[i]) + ".");
        return data;
    }

    const S* checked_side(const std::optional<Array>& side, int64_t rows) const {
        bool is_read = std::any_of(layers_.begin(), layers_.end(),
                                   [](const LayerWeights<S>& layer) { return layer.side_norm.has_value(); });
        if (is_read != side.has_value())
            throw std::invalid_argument(is_read ? "side must be given: a layer has a side norm."
                                                : "side must be None: no layer has a side norm.");
        return side ? checked_data<S>(*side, "side", {rows, hidden_size_}) : nullptr;
    }

    std::vector<LayerTap<S>> checked_taps(const Taps& taps, int64_t rows) const {
        std::vector<LayerTap<S>> outputs;
        for (const auto& [layer, out] : taps) {
            if (layer < 0 || layer > static_cast<int>(layers_.size()))
                throw std::invalid_argument("taps must be of layers in [0, " + std::to_string(layers_.size()) +
                                            "]; got " + std::to_string(layer) + ".");
            outputs.push_back({layer, checked_data<S>(out, "tap", {rows, hidden_size_})});
        }
        return outputs;
    }

    void check_layer(int layer) const {
        if (layer < 0 || layer >= static_cast<int>(layers_.size()))
            throw std::invalid_argument("layer must be in [0, " + std::to_string(layers_.size()) + "); got " +
                                        std::to_string(layer) + ".");
    }

    typename DecoderStack<S>::Segments checked_segments(const Segments& adapters, int64_t rows) const {
        int q_size = shape_.q_size(), inter = shape_.intermediate_size;
        typename DecoderStack<S>::Segments segments;
        for (const auto& [begin, end, adapter] : adapters) {
            check_segment(begin, end, rows);
            adapter->check({{hidden_size_, shape_.qkv_size()},
                            {q_size, hidden_size_},
                            {hidden_size_, 2 * inter},
                            {inter, hidden_size_}});
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
    Array cos_, sin_;
    int hidden_size_;
    DecoderShape shape_;
    DecoderStack<S> stack_;
};

}  // namespace

template <typename S>
void bind_decoder_stack(nb::module_& m) {
    nb::class_<LayerWeights<S>>(m, "LayerWeights")
        .def(
            "__init__",
            [](LayerWeights<S>* self, std::optional<Array> input_norm, std::optional<Array> side_norm,
               std::shared_ptr<PackedLinear<S>> qkv, std::optional<Array> q_norm, std::optional<Array> k_norm,
               std::shared_ptr<PackedLinear<S>> o, Array post_norm, std::shared_ptr<PackedLinear<S>> gate_up,
               std::shared_ptr<PackedLinear<S>> down, int window) {
                new (self) LayerWeights<S>{std::move(input_norm), std::move(side_norm),
                                           std::move(q_norm),     std::move(k_norm),
                                           std::move(post_norm),  std::move(qkv),
                                           std::move(o),          std::move(gate_up),
                                           std::move(down),       window};
            },
            nb::kw_only(), nb::arg("input_norm").none(), nb::arg("side_norm").none(), nb::arg("qkv"),
            nb::arg("q_norm").none(), nb::arg("k_norm").none(), nb::arg("o"), nb::arg("post_norm"), nb::arg("gate_up"),
            nb::arg("down"), nb::arg("window"));
    nb::class_<PyDecoderStack<S>>(m, "DecoderStack")
        .def(nb::init<std::shared_ptr<Machine>, std::optional<std::shared_ptr<PagedAttention<S>>>,
                      typename PyDecoderStack<S>::HeadSizes, std::vector<LayerWeights<S>>, std::optional<Array>,
                      std::shared_ptr<PackedLinear<S>>, Array, Array, float, float>(),
             nb::kw_only(), nb::arg("machine"), nb::arg("attention").none(), nb::arg("heads"), nb::arg("layers"),
             nb::arg("final_norm").none(), nb::arg("lm_head"), nb::arg("cos"), nb::arg("sin"), nb::arg("eps"),
             nb::arg("scale"))
        .def("forward", &PyDecoderStack<S>::forward)
        .def("pre_attention", &PyDecoderStack<S>::pre_attention)
        .def("post_attention", &PyDecoderStack<S>::post_attention)
        .def("logits", &PyDecoderStack<S>::logits, nb::arg("x"), nb::arg("rows").none(), nb::arg("out"));
}

template void bind_decoder_stack<Bf16>(nb::module_&);
template void bind_decoder_stack<float>(nb::module_&);

}  // namespace specserve
