// The weights of a decoder layer that Python owns, checked against the model's shape.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/attention.hpp"
#include "bindings/gated_delta_net.hpp"
#include "bindings/linear.hpp"
#include "bindings/short_conv.hpp"
#include "ops/decoder_stack.hpp"

namespace specserve {

template <typename S>
struct LayerWeights {
    std::optional<Array> input_norm, aux_norm, q_norm, k_norm, attention_output_norm, mlp_norm, mlp_output_norm;
    std::shared_ptr<PackedLinear<S>> qkv, o;
    std::optional<std::shared_ptr<PackedLinear<S>>> gate;  // of attention's heads; no outputs where it has none
    bool gates_in_qkv;                                     // gates of numbers, each behind its head's query
    std::optional<std::shared_ptr<PackedLinear<S>>> gate_up, down, router;  // router: of layers with experts alone
    std::vector<std::pair<std::shared_ptr<PackedLinear<S>>, std::shared_ptr<PackedLinear<S>>>>
        experts;                       // gate_up, down
    std::optional<Array> choice_bias;  // of experts chosen by sigmoids
    std::optional<Array> cos, sin;
    std::optional<std::shared_ptr<PyShortConv<S>>> conv;       // in place of attention
    std::optional<Array> kept;                                 // what the cache has of its tokens
    std::optional<std::shared_ptr<PyGatedDeltaNet<S>>> delta;  // in place of attention
    std::optional<Array> states, trails, updates;              // its memory

    bool attends() const { return !conv && !delta; }
};

template <typename S>
Linear<S> checked_linear(const PackedLinear<S>& packed, const char* name, int out_features, int in_features) {
    const Linear<S>& w = packed.linear();
    if (w.out_features != out_features || w.in_features != in_features)
        throw std::invalid_argument(std::string(name) + " must be [" + std::to_string(out_features) + ", " +
                                    std::to_string(in_features) + "]; got [" + std::to_string(w.out_features) + ", " +
                                    std::to_string(w.in_features) + "].");
    return w;
}

// Null if there is no such norm.
template <typename S>
NormWeight<S> checked_norm(const std::optional<Array>& weight, int size) {
    if (!weight) return {};
    if (weight->dtype() != kDtype<S> && weight->dtype() == kDtype<float>)
        return {nullptr, checked_data<float>(*weight, "norm weight", {size})};
    return {checked_data<S>(*weight, "norm weight", {size}), nullptr};
}

// Of S alone, or null.
template <typename S>
const S* checked_rounded_norm(const std::optional<Array>& weight, int size) {
    return weight ? checked_data<S>(*weight, "norm weight", {size}) : nullptr;
}

// cos, sin: [positions, 1, rotary_dim]; none where nothing is rotated.
inline Rotation checked_rotation(const std::optional<Array>& cos, const std::optional<Array>& sin, int64_t positions,
                                 int head_dim) {
    if (!cos || !sin) return {};
    const float* c = checked_data<float>(*cos, "cos", {positions, 1, kAny});
    int rotary_dim = static_cast<int>(cos->shape(2));
    check_rotary_dim(*cos, head_dim);
    return {c, checked_data<float>(*sin, "sin", {positions, 1, rotary_dim}), rotary_dim};
}

inline void check_inner_size(int size) {
    if (size % kLanes)
        throw std::invalid_argument("the intermediate size must be a multiple of " + std::to_string(kLanes) + "; got " +
                                    std::to_string(size) + ".");
}

// Empty where the layer has a plain MLP. All experts' maps must be kept in one form: their rows are quantised together.
template <typename S>
ExpertLayer<S> checked_mixture(const LayerWeights<S>& weights, const DecoderShape& shape) {
    ExpertLayer<S> layer{};
    if (weights.experts.empty()) return layer;
    if (!weights.router || static_cast<int>(weights.experts.size()) != shape.routing.count)
        throw std::invalid_argument("a layer with experts must have a router and " +
                                    std::to_string(shape.routing.count) + " of them; got " +
                                    std::to_string(weights.experts.size()) + ".");
    int hidden = shape.hidden_size, inner = shape.expert_size;
    check_inner_size(inner);
    if (weights.choice_bias)
        layer.choice_bias = checked_data<float>(*weights.choice_bias, "choice_bias", {shape.routing.count});
    layer.router = checked_linear(**weights.router, "router", shape.routing.count, hidden);
    for (const auto& [gate_up, down] : weights.experts)
        layer.experts.push_back({checked_linear(*gate_up, "an expert's gate_up", 2 * inner, hidden),
                                 checked_linear(*down, "an expert's down", hidden, inner)});
    auto has_form_of = [](const Linear<S>& w, const Linear<S>& first) {
        return !w.coded == !first.coded && w.coded.wide_inputs == first.coded.wide_inputs &&
               !w.corrections == !first.corrections && w.num_scale_groups() == first.num_scale_groups();
    };
    for (const ExpertMaps<S>& maps : layer.experts)
        if (!has_form_of(maps.gate_up, layer.experts[0].gate_up) || !has_form_of(maps.down, layer.experts[0].down))
            throw std::invalid_argument("the experts of a layer must be kept in the same form.");
    return layer;
}

template <typename S>
ShortConv<S> checked_conv(const LayerWeights<S>& weights, int hidden) {
    const PyShortConv<S>& conv = **weights.conv;
    if (conv.size() != hidden)
        throw std::invalid_argument("a layer's short convolution must have " + std::to_string(hidden) +
                                    " channels; got " + std::to_string(conv.size()) + ".");
    return weights.kept ? conv.over(*weights.kept) : conv.without_cache();
}

template <typename S>
void set_gate(const LayerWeights<S>& weights, DecoderLayer<S>& layer) {
    bool has_any = weights.gate || weights.gates_in_qkv;
    if ((weights.gate && weights.gates_in_qkv) || (!layer.attends() && has_any))
        throw std::invalid_argument("gates must be of heads or of numbers, and of attention.");
    if (has_any) layer.gate_of = weights.gate ? GateOf::kHead : GateOf::kNumber;
}

// The layers of a job share its threads, and memory that one of them uses at a time.
template <typename S>
void check_deltas(const std::vector<LayerWeights<S>>& layers, const Machine& machine) {
    const DeltaWorkspace* workspace = nullptr;
    for (const LayerWeights<S>& layer : layers) {
        if (!layer.delta) continue;
        const DeltaWorkspace& own = (*layer.delta)->net().workspace();
        if ((workspace && &own != workspace) || own.pool != machine.pool)
            throw std::invalid_argument("gated delta nets must share one workspace of the layers' machine.");
        if (!layer.states || !layer.trails || !layer.updates)
            throw std::invalid_argument("a layer with a gated delta net must have states, trails and updates.");
        workspace = &own;
    }
}

// Without keys and values in a cache.
template <typename S>
DecoderLayer<S> to_decoder_layer(const LayerWeights<S>& weights, const DecoderShape& shape, int64_t positions) {
    int hidden = shape.hidden_size, inter = shape.intermediate_size, head_dim = shape.heads.head_dim;
    check_inner_size(inter);
    DecoderLayer<S> layer{};
    layer.input_norm = checked_norm<S>(weights.input_norm, hidden);
    layer.aux_norm = checked_norm<S>(weights.aux_norm, hidden);
    if (weights.conv && weights.delta)
        throw std::invalid_argument("a layer must have a short convolution or a gated delta net, not both.");
    if (weights.conv) layer.conv = checked_conv(weights, hidden);
    if (weights.delta) layer.delta = &(*weights.delta)->net();
    set_gate(weights, layer);
    int qkv_inputs = layer.aux_norm ? 2 * hidden : hidden;
    layer.qkv = checked_linear(*weights.qkv, "qkv", shape.qkv_outputs(layer), qkv_inputs);
    if (weights.gate) layer.gate = checked_linear(**weights.gate, "gate", shape.num_gates(layer), qkv_inputs);
    layer.norms_all_heads = weights.q_norm && static_cast<int>(weights.q_norm->shape(0)) != head_dim;
    bool all = layer.norms_all_heads;
    layer.q_norm = checked_norm<S>(weights.q_norm, all ? shape.q_size() : head_dim);
    layer.k_norm = checked_norm<S>(weights.k_norm, all ? shape.heads.num_kv_heads * head_dim : head_dim);
    layer.o = checked_linear(*weights.o, "o", hidden, shape.mixer_outputs(layer));
    layer.attention_output_norm = checked_norm<S>(weights.attention_output_norm, hidden);
    layer.mlp_norm = checked_norm<S>(weights.mlp_norm, hidden);
    layer.mlp_output_norm = checked_norm<S>(weights.mlp_output_norm, hidden);
    layer.mixture = checked_mixture(weights, shape);
    if (layer.mixture.experts.empty()) {
        if (!weights.gate_up || !weights.down)
            throw std::invalid_argument("a layer without experts must have gate_up and down.");
        layer.gate_up = checked_linear(**weights.gate_up, "gate_up", 2 * inter, hidden);
        layer.down = checked_linear(**weights.down, "down", hidden, inter);
    }
    layer.rotation = checked_rotation(weights.cos, weights.sin, positions, head_dim);
    return layer;
}

}  // namespace specserve
