// Norms, rotation and activation of many rows, each a job of one phase.
#include "bindings/bind.hpp"

namespace specserve {

namespace {

// x: [rows, ..., size], the rows' inner dimensions folded by the caller.
template <typename S>
void rms_norm(const Machine& machine, const Array& x, const Array& gain, float eps, const Array& out) {
    const S* g = numbers<S>(gain, "weight", {kAny});
    int size = static_cast<int>(gain.shape(0));
    const S* from = numbers<S>(x, "x", {kAny, kAny, size}, 2);
    int rows = static_cast<int>(x.shape(0)), heads = static_cast<int>(x.shape(1));
    S* to = numbers<S>(out, "out", {rows, heads, size});
    nb::gil_scoped_release free;
    if (rows == 0) return;
    in_parts(*machine.pool, rows, [&](int begin, int end) {
        for (int r = begin; r < end; ++r)
            table_of<S>(machine.kernels)
                .norm({from + r * x.stride(0), x.stride(1), heads}, g, eps, size,
                      {to + ptrdiff_t{r} * heads * size, size, heads});
    });
}

// heads: [rows, heads, dim], turned in place
template <typename S>
void rotary(const Machine& machine, const Array& heads, const Array& cos, const Array& sin) {
    S* at = numbers<S>(heads, "x", {kAny, kAny, kAny}, 2);
    int rows = static_cast<int>(heads.shape(0)), count = static_cast<int>(heads.shape(1));
    const float* c = numbers<float>(cos, "cos", {rows, 1, kAny});
    int size = static_cast<int>(cos.shape(2));
    const float* s = numbers<float>(sin, "sin", {rows, 1, size});
    check_rotary(cos, static_cast<int>(heads.shape(2)));
    nb::gil_scoped_release free;
    if (rows == 0) return;
    in_parts(*machine.pool, rows, [&](int begin, int end) {
        for (int r = begin; r < end; ++r)
            for (int h = 0; h < count; ++h)
                table_of<S>(machine.kernels)
                    .rotate(at + r * heads.stride(0) + h * heads.stride(1),
                            {c + ptrdiff_t{r} * size, s + ptrdiff_t{r} * size, size});
    });
}

template <typename S>
void silu_and_multiply(const Machine& machine, const Array& gate_up, const Array& out) {
    const S* from = numbers<S>(gate_up, "gate_up", {kAny, kAny}, 1);
    int rows = static_cast<int>(gate_up.shape(0)), size = static_cast<int>(gate_up.shape(1)) / 2;
    if (gate_up.shape(1) % 2)
        throw std::invalid_argument("gate_up must have an even number of columns; got " + sizes_of(gate_up) + ".");
    S* to = numbers<S>(out, "out", {rows, size});
    nb::gil_scoped_release free;
    if (rows == 0) return;
    in_parts(*machine.pool, rows, [&](int begin, int end) {
        table_of<S>(machine.kernels)
            .activate({from + begin * gate_up.stride(0), gate_up.stride(0), end - begin}, size,
                      {to + ptrdiff_t{begin} * size, size, end - begin});
    });
}

}  // namespace

template <typename S>
void bind_rowwise(nb::module_& m) {
    m.def("rms_norm", &rms_norm<S>);
    m.def("rotary", &rotary<S>);
    m.def("silu_and_multiply", &silu_and_multiply<S>);
}

template void bind_rowwise<Bf16>(nb::module_&);
template void bind_rowwise<float>(nb::module_&);

}  // namespace specserve
