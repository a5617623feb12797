// What the bindings of each idea offer the module, and what they share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings/arrays.hpp"
#include "runtime/machine.hpp"

namespace specserve {

void bind_plan(nb::module_& m);     // bind_attention.cpp
void bind_sampler(nb::module_& m);  // bind_sampler.cpp

// For each dtype, in a module of its own.
template <typename S>
void bind_linear(nb::module_& m);
template <typename S>
void bind_lowrank(nb::module_& m);
template <typename S>
void bind_rowwise(nb::module_& m);
template <typename S>
void bind_attention(nb::module_& m);
template <typename S>
void bind_stack(nb::module_& m);

// A job of one phase over [0, count).
template <typename Task>
void in_parts(Pool& pool, int count, Task task) {
    pool.run(1, [&](Pool::Crew& crew) { crew.parts(count, task); });
}

inline void check_rotary(const Array& cos, int dim) {
    if (cos.shape(2) % 2 || static_cast<int>(cos.shape(2)) > dim)
        throw std::invalid_argument("cos must have an even number of columns, at most a head's; got " + sizes_of(cos) +
                                    ".");
}

}  // namespace specserve
