// What sampling means, by sorting everything and with plain loops: what the sampler's answers are held against.
#pragma once

#include <cstddef>
#include <vector>

#include "ops/sampler.hpp"

namespace specserve::plain {

// x with -inf for NaN, which is how a NaN counts.
std::vector<float> without_nan(std::vector<float> x);

// The first of the largest.
int best(const std::vector<float>& x);

// x after the row's edits, one after the other.
std::vector<float> edited(std::vector<float> x, const TargetRows& wanted, const TargetRow& row);

// The tokens that are right for a row of these edited logits: two only where a sum of weights is within rounding of its
// border. noise: of every token.
std::vector<int> tokens(const std::vector<float>& x, const TargetRow& row, const std::vector<float>& noise);

}  // namespace specserve::plain
