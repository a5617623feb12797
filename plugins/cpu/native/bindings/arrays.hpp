// Tensors of the caller as pointers, after a check that says who, what, got and wanted.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/common.hpp"

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

template <typename A>
std::string sizes_of(const A& a) {
    std::string text = "[";
    for (size_t i = 0; i < a.ndim(); ++i) text += (i ? ", " : "") + std::to_string(a.shape(i));
    return text + "]";
}

template <typename S, typename A>
[[noreturn]] void refuse(const A& a, const char* name, const std::vector<int64_t>& sizes,
                         const std::string& what = "") {
    std::string wanted;
    for (int64_t size : sizes)
        wanted += (wanted.empty() ? "" : ", ") + (size == kAny ? std::string("any") : std::to_string(size));
    throw std::invalid_argument(std::string(name) + " must be " + dtype_name(kDtype<S>) + " [" + wanted + "]" + what +
                                "; got " + dtype_name(a.dtype()) + " " + sizes_of(a) + ".");
}

template <typename S, typename A>
void check_kind(const A& a, const char* name, const std::vector<int64_t>& sizes) {
    if (a.dtype() != kDtype<S> || a.ndim() != sizes.size()) refuse<S>(a, name, sizes);
    for (size_t i = 0; i < sizes.size(); ++i)
        if (sizes[i] != kAny && static_cast<int64_t>(a.shape(i)) != sizes[i]) refuse<S>(a, name, sizes);
}

// a's numbers, dense from dimension `dense_from` on; earlier dimensions may have any stride. An array without elements
// may be at any address: that of an empty buffer is no multiple of anything.
template <typename S>
S* numbers(const Array& a, const char* name, const std::vector<int64_t>& sizes, size_t dense_from = 0) {
    check_kind<S>(a, name, sizes);
    int64_t stride = 1;
    for (size_t i = a.ndim(); i-- > dense_from; stride *= static_cast<int64_t>(a.shape(i)))
        if (a.size() && a.shape(i) > 1 && a.stride(i) != stride) refuse<S>(a, name, sizes, ", contiguous");
    if (a.size() && reinterpret_cast<uintptr_t>(a.data()) % sizeof(S))
        refuse<S>(a, name, sizes, " at an address that is a multiple of its numbers' size");
    return static_cast<S*>(a.data());
}

// A list of somebody else's, which may lie anywhere, be read-only and have gaps.
using List = nb::ndarray<nb::ro, nb::device::cpu>;

// As a memoryview, where it is a buffer: ctypes' arrays state no strides, which nanobind would read all the same.
inline List list_of(nb::handle given, const char* name) {
    bool is_buffer = PyObject_CheckBuffer(given.ptr());
    nb::object lent = is_buffer ? nb::steal(PyMemoryView_FromObject(given.ptr())) : nb::borrow(given);
    if (!lent.is_valid()) throw nb::python_error();
    List list;
    if (!nb::try_cast(lent, list))
        throw nb::type_error(
            (std::string(name) + " must be an array of numbers; got " + nb::inst_name(given).c_str() + ".").c_str());
    return list;
}

// Puts the numbers of `given` behind those of `to`; size: how many there must be, or kAny. Returns how many there are.
template <typename S>
int64_t append(nb::handle given, const char* name, int64_t size, std::vector<S>& to) {
    List list = list_of(given, name);
    check_kind<S>(list, name, {size});
    const char* from = static_cast<const char*>(list.data());
    size_t count = list.shape(0), begin = to.size();
    to.resize(begin + count);
    bool is_dense = count < 2 || list.stride(0) == 1;
    if (is_dense && count) std::memcpy(&to[begin], from, count * sizeof(S));
    for (size_t i = 0; i < count && !is_dense; ++i)
        std::memcpy(&to[begin + i], from + static_cast<int64_t>(i) * list.stride(0) * static_cast<int64_t>(sizeof(S)),
                    sizeof(S));
    return static_cast<int64_t>(count);
}

}  // namespace specserve
