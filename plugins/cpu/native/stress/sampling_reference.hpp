// The reference for the sampler: sorts everything, with plain loops.
#pragma once

#include <cstddef>
#include <vector>

#include "ops/sampler.hpp"

namespace specserve::reference {

// x with NaN replaced by -inf.
std::vector<float> replace_nan(std::vector<float> x);

// The lowest index of the maximum.
int argmax(const std::vector<float>& x);

// x after the row's edits.
std::vector<float> apply_edits(std::vector<float> x, const TargetRows& targets, const TargetRow& row);

// Whether the row had a token before its edits and has none after them.
bool lost_all_tokens(const std::vector<float>& before, const std::vector<float>& after, const TargetRow& row);

// The valid tokens of a row with these logits after edits: two if the top-p sum is within rounding of its target.
// noise: of every token.
std::vector<int> valid_tokens(const std::vector<float>& x, const TargetRow& row, const std::vector<float>& noise);

}  // namespace specserve::reference
