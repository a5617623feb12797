// The weights of a decoder layer that Python owns, checked against the model's shape.
#pragma once

#include <memory>
#include <optional>

#include "bindings/attention.hpp"
#include "bindings/linear.hpp"
#include "ops/decoder_stack.hpp"

namespace specserve {

template <typename S>
struct LayerWeights {
    std::optional<Array> input_norm, aux_norm, q_norm, k_norm;
    Array post_norm;
    std::shared_ptr<PackedLinear<S>> qkv, o, gate_up, down;
    int window;
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

template <typename S>
const S* checked_norm(const Array& weight, int size) {
    return checked_data<S>(weight, "norm weight", {size});
}

// Null if there is no such norm.
template <typename S>
const S* checked_norm(const std::optional<Array>& weight, int size) {
    return weight ? checked_norm<S>(*weight, size) : nullptr;
}

// Without a cache.
template <typename S>
DecoderLayer<S> to_decoder_layer(const LayerWeights<S>& weights, const DecoderShape& shape) {
    int hidden = shape.hidden_size, inter = shape.intermediate_size, head_dim = shape.heads.head_dim;
    check_window(weights.window);
    if (inter % kLanes)
        throw std::invalid_argument("the intermediate size must be a multiple of " + std::to_string(kLanes) + "; got " +
                                    std::to_string(inter) + ".");
    DecoderLayer<S> layer{};
    layer.input_norm = checked_norm<S>(weights.input_norm, hidden);
    layer.aux_norm = checked_norm<S>(weights.aux_norm, hidden);
    layer.qkv = checked_linear(*weights.qkv, "qkv", shape.qkv_size(), layer.aux_norm ? 2 * hidden : hidden);
    layer.q_norm = checked_norm<S>(weights.q_norm, head_dim);
    layer.k_norm = checked_norm<S>(weights.k_norm, head_dim);
    layer.o = checked_linear(*weights.o, "o", hidden, shape.q_size());
    layer.post_norm = checked_norm<S>(weights.post_norm, hidden);
    layer.gate_up = checked_linear(*weights.gate_up, "gate_up", 2 * inter, hidden);
    layer.down = checked_linear(*weights.down, "down", hidden, inter);
    layer.window = weights.window;
    return layer;
}

}  // namespace specserve
