// Tensors of the caller as pointers, after a check that says who, what, got and wanted.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "common.hpp"

namespace specserve {

namespace nb = nanobind;
using Array = nb::ndarray<nb::device::cpu>;

template <typename S>
constexpr nb::dlpack::dtype kDtype = nb::dtype<S>();
template <>
inline constexpr nb::dlpack::dtype kDtype<Bf16> = {static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};

constexpr int64_t kAny = -1;  // a size that may be anything

inline std::string dtype_name(nb::dlpack::dtype d) {
    static const char* const codes[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
    return (d.code < 7 ? codes[d.code] : "dtype ") + std::to_string(d.bits);
}

inline std::string sizes_of(const Array& a) {
    std::string text = "[";
    for (size_t i = 0; i < a.ndim(); ++i) text += (i ? ", " : "") + std::to_string(a.shape(i));
    return text + "]";
}

// a's numbers, dense from dimension `dense_from` on; earlier dimensions may have any stride.
template <typename S>
S* numbers(const Array& a, const char* name, const std::vector<int64_t>& sizes, size_t dense_from = 0) {
    auto refuse = [&](const std::string& what) {
        std::string wanted;
        for (int64_t size : sizes) wanted += (wanted.empty() ? "" : ", ") + (size == kAny ? std::string("any") : std::to_string(size));
        throw std::invalid_argument(std::string(name) + " must be " + dtype_name(kDtype<S>) + " [" + wanted + "]" + what + "; got " +
                                    dtype_name(a.dtype()) + " " + sizes_of(a) + ".");
    };
    if (a.dtype() != kDtype<S> || a.ndim() != sizes.size()) refuse("");
    for (size_t i = 0; i < sizes.size(); ++i)
        if (sizes[i] != kAny && static_cast<int64_t>(a.shape(i)) != sizes[i]) refuse("");
    int64_t stride = 1;
    for (size_t i = a.ndim(); i-- > dense_from; stride *= static_cast<int64_t>(a.shape(i)))
        if (a.size() && a.shape(i) > 1 && a.stride(i) != stride) refuse(", contiguous");
    if (reinterpret_cast<uintptr_t>(a.data()) % sizeof(S)) refuse(" at an address that is a multiple of its numbers' size");
    return static_cast<S*>(a.data());
}

}  // namespace specserve
