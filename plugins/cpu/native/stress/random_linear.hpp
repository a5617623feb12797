// Linear maps with random weights, of the model's dtype, of 8 bits, or of few bits.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "runtime/packed_weights.hpp"
#include "runtime/quantize.hpp"
#include "stress/random_coded.hpp"
#include "stress/stress.hpp"

namespace specserve {

template <typename S>
struct RandomLinear {
    PackedWeights<S> packed;
    std::vector<double> weight;  // [out_features][in_features], as the map has it
    std::vector<double> sizes;   // of what a weight is the sum of, without signs
};

// How the weights of a map are kept: in the model's dtype, with one scale for `group_size` inputs, or in few bits.
struct LinearForm {
    int group_size = 0;  // 0: the model's dtype
    InputKind inputs = InputKind::kModelDtype;
    bool is_coded = false;
};

// A third each: the model's dtype, few bits, and 8 bits, with one scale per output in half of these. Inputs of 8 bits
// for half of what can have them.
template <typename S>
LinearForm random_form(Random& random, int in_features) {
    int kind = between(random, 0, 2);
    if (kind == 0) return {};
    InputKind inputs = between(random, 0, 1) ? InputKind::kQuantized : InputKind::kModelDtype;
    if (kind == 1) return {0, inputs, true};
    int multiple = inputs == InputKind::kQuantized ? kVnni<QuantizedInput> : kVnni<S>;
    return {between(random, 0, 1) ? in_features : between(random, 1, 40) * multiple, inputs};
}

template <typename S>
RandomLinear<S> random_linear(ThreadPool& pool, Random& random, int out_features, int in_features, const S* bias,
                              LinearForm form) {
    if (form.is_coded) {
        RandomCoded map(random, out_features, in_features);
        PackedWeights<S> packed(map.packed(pool), form.inputs, bias);
        map.check_rows(*packed.coded());
        return {std::move(packed), map.weights(form.inputs), map.sizes()};
    }
    size_t count = static_cast<size_t>(out_features * in_features);
    std::vector<S> numbers = random_numbers<S>(random, count);
    std::vector<double> weight(count);
    int group_size = form.group_size;
    if (!group_size) {
        for (size_t i = 0; i < count; ++i) weight[i] = to_double(numbers[i]);
        return {{pool, numbers.data(), bias, out_features, in_features}, weight, weight};
    }
    int groups = ceil_div(in_features, group_size);
    std::vector<int8_t> integers(count);
    std::vector<float> scales(static_cast<size_t>(out_features * groups));
    require(quantize(pool, numbers.data(), out_features, in_features, group_size, integers.data(), scales.data()),
            "random weights are finite");
    for (int out = 0; out < out_features; ++out)
        for (int in = 0; in < in_features; ++in) {
            size_t i = static_cast<size_t>(out * in_features + in);
            double scale = static_cast<double>(scales[static_cast<size_t>(out * groups + in / group_size)]);
            weight[i] = integers[i] * scale;
            require(std::fabs(weight[i] - to_double(numbers[i])) <= 0.5001 * scale, "a weight is not the nearest");
        }
    QuantizedRows rows{integers.data(), scales.data(), group_size};
    return {{pool, rows, form.inputs, bias, out_features, in_features}, weight, weight};
}

template <typename S>
RandomLinear<S> random_linear(ThreadPool& pool, Random& random, int out_features, int in_features, const S* bias) {
    return random_linear(pool, random, out_features, in_features, bias, random_form<S>(random, in_features));
}

}  // namespace specserve
