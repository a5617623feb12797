// The fused layers: parts that were bound by themselves, checked against each other and made one call.
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "bindings/attention.hpp"
#include <nanobind/stl/tuple.h>

#include "bindings/lowrank.hpp"
#include "ops/decoder_stack.hpp"

namespace specserve {

namespace {

template <typename S>
struct LayerParts {
    Array input_norm, post_norm;
    std::optional<Array> q_norm, k_norm;
    std::shared_ptr<PackedLinear<S>> qkv, o, gate_up, down;
    int window;
};

template <typename S>
class FusedStack {
   public:
    using HeadSizes = std::tuple<int, int, int>;  // query heads, key heads, numbers of a head

    // Without `attention` there is no `forward`: somebody else's attention comes between `enter` and `leave`.
    FusedStack(std::shared_ptr<Machine> machine, std::optional<std::shared_ptr<PagedAttention<S>>> attention,
               HeadSizes heads, std::vector<LayerParts<S>> layers, Array final_norm,
               std::shared_ptr<PackedLinear<S>> head, Array cos, Array sin, float eps, float scale)
        : machine_(std::move(machine)), attention_(attention ? std::move(*attention) : nullptr),
          layers_(std::move(layers)), final_norm_(std::move(final_norm)), head_(std::move(head)), cos_(std::move(cos)),
          sin_(std::move(sin)), hidden_(head_->linear().ins), shape_(shape_of(heads, eps, scale)), stack_(build()) {}

    void forward(const Array& x, const Array& positions, const Array& slots, const Plan& plan, int begin, int end,
                 const std::vector<AdapterSegment<S>>& adapters) {
        S* at = numbers<S>(x, "x", {kAny, hidden_});
        int64_t rows = static_cast<int64_t>(x.shape(0));
        const int64_t* where = checked_positions(positions, rows);
        const int64_t* places = numbers<int64_t>(slots, "slots", {rows});
        if (!attention_) throw std::invalid_argument("the layers were made without attention: use enter and leave.");
        check_plan(plan, rows, attention_->num_slots(), attention_->layout().slots);
        check_slots(places, rows, attention_->num_slots());
        auto segments = checked_segments(adapters, rows);
        if (begin < 0 || begin > end || end > static_cast<int>(layers_.size()))
            throw std::invalid_argument("layers must be a range within [0, " + std::to_string(layers_.size()) +
                                        "]; got [" + std::to_string(begin) + ", " + std::to_string(end) + "].");
        nb::gil_scoped_release free;
        std::lock_guard alone(busy_);
        if (rows && begin < end) stack_.forward(at, where, places, plan, begin, end, segments);
    }

    void enter(int layer, const Array& x, const Array& positions, const std::vector<AdapterSegment<S>>& adapters,
               const Array& qkv) {
        const S* at = numbers<S>(x, "x", {kAny, hidden_});
        int64_t rows = static_cast<int64_t>(x.shape(0));
        const int64_t* where = checked_positions(positions, rows);
        S* to = numbers<S>(qkv, "qkv", {rows, shape_.qkv_size()});
        check_layer(layer);
        auto segments = checked_segments(adapters, rows);
        nb::gil_scoped_release free;
        std::lock_guard alone(busy_);
        if (rows) stack_.enter(layer, at, where, static_cast<int>(rows), segments, to);
    }

    void leave(int layer, const Array& x, const Array& attended, const std::vector<AdapterSegment<S>>& adapters) {
        S* at = numbers<S>(x, "x", {kAny, hidden_});
        int64_t rows = static_cast<int64_t>(x.shape(0));
        const S* from = numbers<S>(attended, "attended", {rows, shape_.query_size()});
        check_layer(layer);
        auto segments = checked_segments(adapters, rows);
        nb::gil_scoped_release free;
        std::lock_guard alone(busy_);
        if (rows) stack_.leave(layer, at, from, static_cast<int>(rows), segments);
    }

    void logits(const Array& x, const std::optional<Array>& rows, const Array& out) {
        const S* at = numbers<S>(x, "x", {kAny, hidden_});
        int64_t count = static_cast<int64_t>(rows ? rows->shape(0) : x.shape(0));
        const int64_t* which = rows ? numbers<int64_t>(*rows, "rows", {count}) : nullptr;
        for (int64_t i = 0; which && i < count; ++i)
            if (which[i] < 0 || which[i] >= static_cast<int64_t>(x.shape(0)))
                throw std::invalid_argument("rows must be in [0, " + std::to_string(x.shape(0)) + "); got " +
                                            std::to_string(which[i]) + ".");
        float* to = numbers<float>(out, "out", {count, head_->linear().outs});
        nb::gil_scoped_release free;
        std::lock_guard alone(busy_);
        if (count) stack_.logits(at, which, static_cast<int>(count), to);
    }

   private:
    Shape shape_of(HeadSizes sizes, float eps, float scale) const {
        auto [queries, keys, dim] = sizes;
        Heads heads{queries, keys, dim};
        if (keys < 1 || queries < keys || queries % keys || dim < 1)
            throw std::invalid_argument("query heads must be a multiple of key heads; got " + std::to_string(queries) +
                                        " and " + std::to_string(keys) + ".");
        if (attention_ && !(attention_->heads() == heads))
            throw std::invalid_argument("heads must be those of the attention.");
        const float* cos = numbers<float>(cos_, "cos", {kAny, 1, kAny});
        int rotary = static_cast<int>(cos_.shape(2)), inner = layers_.empty() ? 0 : layers_[0].down->linear().ins;
        check_rotary(cos_, dim);
        return {hidden_, inner, heads,
                eps,     scale, attention_ ? attention_->key_limit() : 0.0f,
                rotary,  cos,   numbers<float>(sin_, "sin", {static_cast<int64_t>(cos_.shape(0)), 1, rotary})};
    }

    Stack<S> build() const {
        const Heads& heads = shape_.heads;
        int qkv = shape_.qkv_size(), query = shape_.query_size(), inner = shape_.inner;
        if (attention_ && static_cast<int>(layers_.size()) > attention_->num_layers())
            throw std::invalid_argument("layers must be at most the cache's " +
                                        std::to_string(attention_->num_layers()) + "; got " +
                                        std::to_string(layers_.size()) + ".");
        std::vector<Layer<S>> layers;
        for (size_t i = 0; i < layers_.size(); ++i) {
            const LayerParts<S>& part = layers_[i];
            auto gain = [&](const Array& a, int size) {
                return static_cast<const S*>(numbers<S>(a, "norm weight", {size}));
            };
            auto fits = [&](const PackedLinear<S>& p, const char* name, int outs, int ins) {
                if (p.linear().outs != outs || p.linear().ins != ins)
                    throw std::invalid_argument(std::string(name) + " must be [" + std::to_string(outs) + ", " +
                                                std::to_string(ins) + "]; got [" + std::to_string(p.linear().outs) +
                                                ", " + std::to_string(p.linear().ins) + "].");
                return p.linear();
            };
            check_window(part.window);
            if (inner % kLanes)
                throw std::invalid_argument("the intermediate size must be a multiple of " + std::to_string(kLanes) +
                                            "; got " + std::to_string(inner) + ".");
            layers.push_back({gain(part.input_norm, hidden_), fits(*part.qkv, "qkv", qkv, hidden_),
                              part.q_norm ? gain(*part.q_norm, heads.dim) : nullptr,
                              part.k_norm ? gain(*part.k_norm, heads.dim) : nullptr, fits(*part.o, "o", hidden_, query),
                              gain(part.post_norm, hidden_), fits(*part.gate_up, "gate_up", 2 * inner, hidden_),
                              fits(*part.down, "down", hidden_, inner),
                              attention_ ? attention_->layer_of(static_cast<int>(i)) : CacheLayer<S>{}, part.window});
        }
        const Table<S>& table = table_of<S>(machine_->kernels);
        return Stack<S>(table, attention_ ? attention_->layout() : table.by_slot, machine_->pool, shape_,
                        std::move(layers), gain_of_final(), head_->linear());
    }

    const int64_t* checked_positions(const Array& positions, int64_t rows) const {
        const int64_t* where = numbers<int64_t>(positions, "positions", {rows});
        for (int64_t i = 0; i < rows; ++i)
            if (where[i] < 0 || where[i] >= static_cast<int64_t>(cos_.shape(0)))
                throw std::invalid_argument("positions must be in [0, " + std::to_string(cos_.shape(0)) + "); got " +
                                            std::to_string(where[i]) + ".");
        return where;
    }

    void check_layer(int layer) const {
        if (layer < 0 || layer >= static_cast<int>(layers_.size()))
            throw std::invalid_argument("layer must be in [0, " + std::to_string(layers_.size()) + "); got " +
                                        std::to_string(layer) + ".");
    }

    typename Stack<S>::Segments checked_segments(const std::vector<AdapterSegment<S>>& adapters, int64_t rows) const {
        typename Stack<S>::Segments segments;
        for (const auto& [begin, end, adapter] : adapters) {
            check_segment(begin, end, rows);
            adapter->check({{hidden_, shape_.qkv_size()},
                            {shape_.query_size(), hidden_},
                            {hidden_, 2 * shape_.inner},
                            {shape_.inner, hidden_}});
            segments.push_back({begin, end, &adapter->adapter()});
        }
        return segments;
    }

    const S* gain_of_final() const { return numbers<S>(final_norm_, "final norm", {hidden_}); }

    std::shared_ptr<Machine> machine_;
    std::shared_ptr<PagedAttention<S>> attention_;
    std::vector<LayerParts<S>> layers_;
    Array final_norm_;
    std::shared_ptr<PackedLinear<S>> head_;
    std::mutex busy_;
    Array cos_, sin_;
    int hidden_;
    Shape shape_;
    Stack<S> stack_;
};

}  // namespace

template <typename S>
void bind_stack(nb::module_& m) {
    nb::class_<LayerParts<S>>(m, "LayerParts")
        .def(
            "__init__",
            [](LayerParts<S>* self, Array input_norm, std::shared_ptr<PackedLinear<S>> qkv, std::optional<Array> q_norm,
               std::optional<Array> k_norm, std::shared_ptr<PackedLinear<S>> o, Array post_norm,
               std::shared_ptr<PackedLinear<S>> gate_up, std::shared_ptr<PackedLinear<S>> down, int window) {
                new (self) LayerParts<S>{std::move(input_norm), std::move(post_norm), std::move(q_norm),
                                         std::move(k_norm),     std::move(qkv),       std::move(o),
                                         std::move(gate_up),    std::move(down),      window};
            },
            nb::kw_only(), nb::arg("input_norm"), nb::arg("qkv"), nb::arg("q_norm").none(), nb::arg("k_norm").none(),
            nb::arg("o"), nb::arg("post_norm"), nb::arg("gate_up"), nb::arg("down"), nb::arg("window"));
    nb::class_<FusedStack<S>>(m, "FusedStack")
        .def(nb::init<std::shared_ptr<Machine>, std::optional<std::shared_ptr<PagedAttention<S>>>,
                      typename FusedStack<S>::HeadSizes, std::vector<LayerParts<S>>, Array,
                      std::shared_ptr<PackedLinear<S>>, Array, Array, float, float>(),
             nb::kw_only(), nb::arg("machine"), nb::arg("attention").none(), nb::arg("heads"), nb::arg("layers"),
             nb::arg("final_norm"), nb::arg("head"), nb::arg("cos"), nb::arg("sin"), nb::arg("eps"), nb::arg("scale"))
        .def("forward", &FusedStack<S>::forward)
        .def("enter", &FusedStack<S>::enter)
        .def("leave", &FusedStack<S>::leave)
        .def("logits", &FusedStack<S>::logits, nb::arg("x"), nb::arg("rows").none(), nb::arg("out"));
}

template void bind_stack<Bf16>(nb::module_&);
template void bind_stack<float>(nb::module_&);

}  // namespace specserve
