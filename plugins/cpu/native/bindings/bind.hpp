// What each binding file registers, and what they share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings/arrays.hpp"
#include "runtime/kernel_job.hpp"
#include "runtime/machine.hpp"

namespace specserve {

void bind_plan(nb::module_& m);             // attention.cpp
void bind_sampler(nb::module_& m);          // sampler.cpp
void bind_coded(nb::module_& m);            // linear.cpp
void bind_delta_workspace(nb::module_& m);  // gated_delta_net.cpp

// For each dtype, in a submodule.
template <typename S>
void bind_linear(nb::module_& m);
template <typename S>
void bind_lowrank(nb::module_& m);
template <typename S>
void bind_rowwise(nb::module_& m);
template <typename S>
void bind_attention(nb::module_& m);
template <typename S>
void bind_decoder_stack(nb::module_& m);
template <typename S>
void bind_draft_head(nb::module_& m);
template <typename S>
void bind_block_head(nb::module_& m);
template <typename S>
void bind_gated_delta_net(nb::module_& m);

// A job of one phase that runs kernels for S.
template <typename S, typename Task>
void parallel_for_ranges(const Machine& machine, int count, Task task) {
    run_kernels(*machine.pool, kernel_table<S>(machine.kernels), 1,
                [&](ThreadPool::Team& team) { team.parallel_for_ranges(count, task); });
}

inline void check_rotary_dim(const Array& cos, int head_dim) {
    if (cos.shape(2) % 2 || static_cast<int>(cos.shape(2)) > head_dim)
        throw std::invalid_argument("cos must have an even number of columns, at most a head's; got " +
                                    shape_string(cos) + ".");
}

}  // namespace specserve
