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

// Experts of a layer, experts of a row, what scores are, whether weights are renormalised, and rounded; of sigmoids,
// what is added to the sum, and what weights are multiplied by.
using RoutingNumbers = std::tuple<int, int, std::string, bool, bool, float, float>;

inline Scores checked_scores(const std::string& name) {
    if (name == "softmax") return Scores::kSoftmax;
    if (name == "softmax of the chosen") return Scores::kSoftmaxOfChosen;
    if (name == "sigmoid") return Scores::kSigmoid;
    throw std::invalid_argument("scores must be softmax, softmax of the chosen or sigmoid; got " + name + ".");
}

inline Routing checked_routing(const RoutingNumbers& numbers) {
    auto [count, chosen, name, renormalizes, rounds, added_to_sum, weight_scale] = numbers;
    if (chosen < 1 || chosen > count || chosen > kMaxChosen)
        throw std::invalid_argument("a row must have between 1 and " + std::to_string(kMaxChosen) + " of " +
                                    std::to_string(count) + " experts; got " + std::to_string(chosen) + ".");
    Scores scores = checked_scores(name);
    if (scores == Scores::kSigmoid && !rounds) throw std::invalid_argument("weights of sigmoids must be rounded.");
    return {count, chosen, scores, renormalizes, rounds, added_to_sum, weight_scale};
}

}  // namespace specserve
