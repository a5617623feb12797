// The caller's tensors as pointers, after checks. Messages say which argument, what was got and what is allowed.
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

constexpr int64_t kAny = -1;  // matches every size

inline std::string dtype_name(nb::dlpack::dtype d) {
    static const char* const codes[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
    return (d.code < 7 ? codes[d.code] : "dtype ") + std::to_string(d.bits);
}

template <typename A>
std::string shape_string(const A& a) {
    std::string text = "[";
    for (size_t i = 0; i < a.ndim(); ++i) text += (i ? ", " : "") + std::to_string(a.shape(i));
    return text + "]";
}

template <typename S, typename A>
[[noreturn]] void throw_mismatch(const A& a, const char* name, const std::vector<int64_t>& shape,
                                 const std::string& condition = "") {
    std::string expected;
    for (int64_t size : shape)
        expected += (expected.empty() ? "" : ", ") + (size == kAny ? std::string("any") : std::to_string(size));
    throw std::invalid_argument(std::string(name) + " must be " + dtype_name(kDtype<S>) + " [" + expected + "]" +
                                condition + "; got " + dtype_name(a.dtype()) + " " + shape_string(a) + ".");
}

template <typename S, typename A>
void check_dtype_and_shape(const A& a, const char* name, const std::vector<int64_t>& shape) {
    if (a.dtype() != kDtype<S> || a.ndim() != shape.size()) throw_mismatch<S>(a, name, shape);
    for (size_t i = 0; i < shape.size(); ++i)
        if (shape[i] != kAny && static_cast<int64_t>(a.shape(i)) != shape[i]) throw_mismatch<S>(a, name, shape);
}

// The array's elements, contiguous from dimension `contiguous_from` on; earlier dimensions may have any stride. The
// address of an empty array is not checked: an empty buffer may be unaligned.
template <typename S>
S* checked_data(const Array& a, const char* name, const std::vector<int64_t>& shape, size_t contiguous_from = 0) {
    check_dtype_and_shape<S>(a, name, shape);
    int64_t stride = 1;
    for (size_t i = a.ndim(); i-- > contiguous_from; stride *= static_cast<int64_t>(a.shape(i)))
        if (a.size() && a.shape(i) > 1 && a.stride(i) != stride) throw_mismatch<S>(a, name, shape, ", contiguous");
    if (a.size() && reinterpret_cast<uintptr_t>(a.data()) % sizeof(S))
        throw_mismatch<S>(a, name, shape, " at an address that is a multiple of the element size");
    return static_cast<S*>(a.data());
}

// A one-dimensional array or buffer, possibly unaligned, read-only or strided.
using ListArray = nb::ndarray<nb::ro, nb::device::cpu>;

// Buffers go through a memoryview: ctypes arrays have no strides, which nanobind would read all the same.
inline ListArray to_list_array(nb::handle object, const char* name) {
    bool is_buffer = PyObject_CheckBuffer(object.ptr());
    nb::object view = is_buffer ? nb::steal(PyMemoryView_FromObject(object.ptr())) : nb::borrow(object);
    if (!view.is_valid()) throw nb::python_error();
    ListArray list;
    if (!nb::try_cast(view, list))
        throw nb::type_error(
            (std::string(name) + " must be an array of numbers; got " + nb::inst_name(object).c_str() + ".").c_str());
    return list;
}

// Appends the elements of `object` to `out` and returns their number. size: the number they must have, or kAny.
template <typename S>
int64_t append(nb::handle object, const char* name, int64_t size, std::vector<S>& out) {
    ListArray list = to_list_array(object, name);
    check_dtype_and_shape<S>(list, name, {size});
    const char* data = static_cast<const char*>(list.data());
    size_t count = list.shape(0), begin = out.size();
    out.resize(begin + count);
    bool is_contiguous = count < 2 || list.stride(0) == 1;
    if (is_contiguous && count) std::memcpy(&out[begin], data, count * sizeof(S));
    for (size_t i = 0; i < count && !is_contiguous; ++i)
        std::memcpy(&out[begin + i], data + static_cast<int64_t>(i) * list.stride(0) * static_cast<int64_t>(sizeof(S)),
                    sizeof(S));
    return static_cast<int64_t>(count);
}

}  // namespace specserve
