// A gated delta net in float64, token by token: what the stress test holds `GatedDeltaNet` to.
#pragma once

#include <vector>

#include "ops/gated_delta_net.hpp"

namespace specserve {

// S of every value head, and the inputs of the last L - 1 tokens, as in a state of `GatedDeltaNet`.
using ReferenceState = std::vector<double>;

// The state goes on by this row of [row_size]. Returns [out_features]. Numbers are rounded to S where the kernels do.
template <typename S>
std::vector<double> reference_step(const DeltaShape& shape, const DeltaWeights& weights, ReferenceState& state,
                                   const S* row);

}  // namespace specserve
