// RMSNorm, RoPE, the activations, gates and the choice of experts of a batch, each a job of one phase.
#include "bindings/bind.hpp"
#include "bindings/decoder_weights.hpp"
#include "bindings/routing.hpp"

#include <nanobind/stl/tuple.h>

namespace specserve {

namespace {

// x, out: [rows, heads, size]
template <typename S>
void rms_norm(const Machine& machine, const Array& x, const Array& weight, float eps, const Array& out) {
    if (weight.ndim() != 1) checked_data<S>(weight, "weight", {kAny});
    int size = static_cast<int>(weight.shape(0));
    NormWeight<S> w = checked_norm<S>(weight, size);
    const S* inputs = checked_data<S>(x, "x", {kAny, kAny, size}, 2);
    int rows = static_cast<int>(x.shape(0)), heads = static_cast<int>(x.shape(1));
    S* outputs = checked_data<S>(out, "out", {rows, heads, size});
    nb::gil_scoped_release no_gil;
    if (rows == 0) return;
    parallel_for_ranges<S>(machine, rows, [&](int begin, int end) {
        const KernelTable<S>& table = kernel_table<S>(machine.kernels);
        for (int r = begin; r < end; ++r) {
            Rows<const S> from{inputs + r * x.stride(0), x.stride(1), heads};
            Rows<S> to{outputs + ptrdiff_t{r} * heads * size, size, heads};
            w.wide ? table.rms_norm_wide(from, w.wide, eps, size, to) : table.rms_norm(from, w.rounded, eps, size, to);
        }
    });
}

// x: [rows, heads, head_dim], in place
template <typename S>
void apply_rope(const Machine& machine, const Array& x, const Array& cos, const Array& sin) {
    S* data = checked_data<S>(x, "x", {kAny, kAny, kAny}, 2);
    int rows = static_cast<int>(x.shape(0)), heads = static_cast<int>(x.shape(1));
    const float* c = checked_data<float>(cos, "cos", {rows, 1, kAny});
    int rotary_dim = static_cast<int>(cos.shape(2));
    const float* s = checked_data<float>(sin, "sin", {rows, 1, rotary_dim});
    check_rotary_dim(cos, static_cast<int>(x.shape(2)));
    nb::gil_scoped_release no_gil;
    if (rows == 0) return;
    parallel_for_ranges<S>(machine, rows, [&](int begin, int end) {
        for (int r = begin; r < end; ++r)
            for (int h = 0; h < heads; ++h)
                kernel_table<S>(machine.kernels)
                    .apply_rope(data + r * x.stride(0) + h * x.stride(1),
                                {c + ptrdiff_t{r} * rotary_dim, s + ptrdiff_t{r} * rotary_dim, rotary_dim});
    });
}

template <typename S>
using Activate = void (*KernelTable<S>::*)(Rows<const S> gate_up, int size, Rows<S> out);

template <typename S, Activate<S> activate>
void activate_and_multiply(const Machine& machine, const Array& gate_up, const Array& out) {
    const S* inputs = checked_data<S>(gate_up, "gate_up", {kAny, kAny}, 1);
    int rows = static_cast<int>(gate_up.shape(0)), size = static_cast<int>(gate_up.shape(1)) / 2;
    if (gate_up.shape(1) % 2)
        throw std::invalid_argument("gate_up must have an even number of columns; got " + shape_string(gate_up) + ".");
    S* outputs = checked_data<S>(out, "out", {rows, size});
    nb::gil_scoped_release no_gil;
    if (rows == 0) return;
    parallel_for_ranges<S>(machine, rows, [&](int begin, int end) {
        (kernel_table<S>(machine.kernels).*activate)(
            {inputs + begin * gate_up.stride(0), gate_up.stride(0), end - begin}, size,
            {outputs + ptrdiff_t{begin} * size, size, end - begin});
    });
}

template <typename S>
void clamped_swiglu(const Machine& machine, const Array& gate_up, float gain, float limit, const Array& out) {
    const S* inputs = checked_data<S>(gate_up, "gate_up", {kAny, kAny}, 1);
    int rows = static_cast<int>(gate_up.shape(0)), size = static_cast<int>(gate_up.shape(1)) / 2;
    S* outputs = checked_data<S>(out, "out", {rows, size});
    nb::gil_scoped_release no_gil;
    if (rows == 0) return;
    parallel_for_ranges<S>(machine, rows, [&](int begin, int end) {
        kernel_table<S>(machine.kernels)
            .clamped_swiglu({inputs + begin * gate_up.stride(0), gate_up.stride(0), end - begin}, size, {gain, limit},
                            {outputs + ptrdiff_t{begin} * size, size, end - begin});
    });
}

// x, out: [rows, n]; gates: [rows, m], each of n / m neighbours
template <typename S>
void gate(const Machine& machine, const Array& x, const Array& gates, const Array& out) {
    const S* inputs = checked_data<S>(x, "x", {kAny, kAny}, 1);
    int rows = static_cast<int>(x.shape(0)), size = static_cast<int>(x.shape(1));
    const S* of_rows = checked_data<S>(gates, "gates", {rows, kAny}, 1);
    int count = static_cast<int>(gates.shape(1));
    if (count < 1 || size % count)
        throw std::invalid_argument("x must have a multiple of the gates' columns; got " + shape_string(x) + " and " +
                                    shape_string(gates) + ".");
    S* outputs = checked_data<S>(out, "out", {rows, size});
    nb::gil_scoped_release no_gil;
    if (rows == 0) return;
    parallel_for_ranges<S>(machine, rows, [&](int begin, int end) {
        for (ptrdiff_t r = begin; r < end; ++r)
            kernel_table<S>(machine.kernels)
                .gate(inputs + r * x.stride(0), of_rows + r * gates.stride(0), count, size / count, outputs + r * size);
    });
}

// logits: [rows, experts]; choice_bias: [experts]; chosen: int64 [rows, k], weights: float32 [rows, k]
template <typename S>
void choose_of_rows(const Machine& machine, const Array& logits, const RoutingNumbers& numbers,
                    const std::optional<Array>& choice_bias, const Array& chosen, const Array& weights) {
    Routing routing = checked_routing(numbers);
    const S* scores = checked_data<S>(logits, "logits", {kAny, routing.count}, 1);
    const float* bias = choice_bias ? checked_data<float>(*choice_bias, "choice_bias", {routing.count}) : nullptr;
    int rows = static_cast<int>(logits.shape(0)), k = routing.chosen;
    int64_t* experts = checked_data<int64_t>(chosen, "chosen", {rows, k});
    float* own_weights = checked_data<float>(weights, "weights", {rows, k});
    nb::gil_scoped_release no_gil;
    if (rows == 0) return;
    parallel_for_ranges<S>(machine, rows, [&](int begin, int end) {
        std::vector<float> scratch(static_cast<size_t>(2 * routing.count));
        int32_t of_row[kMaxChosen];
        for (ptrdiff_t r = begin; r < end; ++r) {
            choose_experts(kernel_table<S>(machine.kernels), routing, {scores + r * logits.stride(0), bias},
                           scratch.data(), of_row, own_weights + r * k);
            std::copy(of_row, of_row + k, experts + r * k);
        }
    });
}

}  // namespace

template <typename S>
void bind_rowwise(nb::module_& m) {
    m.def("rms_norm", &rms_norm<S>);
    m.def("apply_rope", &apply_rope<S>);
    m.def("silu_and_multiply", &activate_and_multiply<S, &KernelTable<S>::silu_and_multiply>);
    m.def("clamped_swiglu", &clamped_swiglu<S>);
    m.def("gate", &gate<S>);
    m.def("choose_experts", &choose_of_rows<S>, nb::arg("machine"), nb::arg("logits"), nb::arg("routing"),
          nb::arg("choice_bias").none(), nb::arg("experts"), nb::arg("weights"));
    m.def("gelu_and_multiply", &activate_and_multiply<S, &KernelTable<S>::gelu_and_multiply>);
}

template void bind_rowwise<Bf16>(nb::module_&);
template void bind_rowwise<float>(nb::module_&);

}  // namespace specserve
