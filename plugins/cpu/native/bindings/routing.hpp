// The activation, and how experts are chosen, as Python says it.
#pragma once

#include <stdexcept>
#include <string>
#include <tuple>

#include "ops/experts.hpp"

namespace specserve {

// Its name; gain and limit of clamped_swiglu.
using ActivationNumbers = std::tuple<std::string, float, float>;

inline ActivationRule checked_activation(const ActivationNumbers& numbers) {
    const auto& [name, gain, limit] = numbers;
    if (name == "silu") return {Activation::kSilu};
    if (name == "gelu_tanh") return {Activation::kGelu};
    if (name == "clamped_swiglu") return {Activation::kClampedSwiglu, {gain, limit}};
    throw std::invalid_argument("the activation must be silu, gelu_tanh or clamped_swiglu; got " + name + ".");
}

// Experts of a layer, experts of a row, what scores are a softmax of, whether weights are renormalised, and rounded.
using RoutingNumbers = std::tuple<int, int, std::string, bool, bool>;

inline Routing checked_routing(const RoutingNumbers& numbers) {
    auto [count, chosen, scores, renormalizes, rounds] = numbers;
    if (chosen < 1 || chosen > count || chosen > kMaxChosen)
        throw std::invalid_argument("a row must have between 1 and " + std::to_string(kMaxChosen) + " of " +
                                    std::to_string(count) + " experts; got " + std::to_string(chosen) + ".");
    if (scores != "softmax" && scores != "softmax of the chosen")
        throw std::invalid_argument("scores must be softmax or softmax of the chosen; got " + scores + ".");
    return {count, chosen, scores == "softmax" ? Scores::kSoftmax : Scores::kSoftmaxOfChosen, renormalizes, rounds};
}

}  // namespace specserve
