// A linear map that Python owns: packed weights, and the machine that multiplies by them.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "bindings/bind.hpp"
#include "runtime/packed_weights.hpp"

namespace specserve {

template <typename S>
class PackedLinear {
   public:
    PackedLinear(std::shared_ptr<Machine> machine, const Array& weight, const std::optional<Array>& bias)
        : machine_(std::move(machine)), packed_(pack(weight, bias)) {}

    void forward(const Array& x, const Array& out) const {
        const Linear<S>& w = packed_.linear();
        const S* inputs = checked_data<S>(x, "x", {kAny, w.in_features}, 1);
        int rows = static_cast<int>(x.shape(0));
        S* outputs = checked_data<S>(out, "out", {rows, w.out_features}, 1);
        const KernelTable<S>& table = kernel_table<S>(machine_->kernels);
        nb::gil_scoped_release no_gil;
        if (rows == 0) return;
        parallel_for_ranges(*machine_->pool, w.num_panels(), [&](int begin, int end) {
            table.linear(w, {inputs, x.stride(0), rows}, {begin, end}, {outputs, out.stride(0), rows});
        });
    }

    const Linear<S>& linear() const { return packed_.linear(); }

   private:
    static PackedWeights<S> pack(const Array& weight, const std::optional<Array>& bias) {
        const S* w = checked_data<S>(weight, "weight", {kAny, kAny});
        int out_features = static_cast<int>(weight.shape(0)), in_features = static_cast<int>(weight.shape(1));
        if (out_features < 1 || in_features < 1 || in_features % kVnni<S>)
            throw std::invalid_argument("weight must have outputs and, in bfloat16, an even number of inputs; got " +
                                        shape_string(weight) + ".");
        const S* b = bias ? checked_data<S>(*bias, "bias", {out_features}) : nullptr;
        nb::gil_scoped_release no_gil;
        return PackedWeights<S>(w, b, out_features, in_features);
    }

    std::shared_ptr<Machine> machine_;
    PackedWeights<S> packed_;
};

}  // namespace specserve
