// Symmetric quantisation of weights to 8 bits, rounded to nearest.
#pragma once

#include "kernels/common.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

// weight: [rows][columns] -> integers: [rows][columns] in [-127, 127], scales: [rows][groups of `group_size` columns].
// weight = integer * scale, within half a scale; a group of zeros has scale 0. False if a weight is not finite.
template <typename S>
bool quantize(ThreadPool& pool, const S* weight, int rows, int columns, int group_size, int8_t* integers,
              float* scales);

}  // namespace specserve
