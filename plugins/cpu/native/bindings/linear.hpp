// A linear map that Python holds: packed weights, and the machine that multiplies by them.
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

    void run(const Array& x, const Array& out) const {
        const Linear<S>& w = packed_.linear();
        const S* from = numbers<S>(x, "x", {kAny, w.ins}, 1);
        int rows = static_cast<int>(x.shape(0));
        S* to = numbers<S>(out, "out", {rows, w.outs}, 1);
        const Table<S>& table = table_of<S>(machine_->kernels);
        nb::gil_scoped_release free;
        if (rows == 0) return;
        in_parts(*machine_->pool, w.num_panels(), [&](int begin, int end) {
            table.store(w, {from, x.stride(0), rows}, {begin, end}, {to, out.stride(0), rows});
        });
    }

    const Linear<S>& linear() const { return packed_.linear(); }

   private:
    static Packed<S> pack(const Array& weight, const std::optional<Array>& bias) {
        const S* w = numbers<S>(weight, "weight", {kAny, kAny});
        int outs = static_cast<int>(weight.shape(0)), ins = static_cast<int>(weight.shape(1));
        if (outs < 1 || ins < 1 || ins % kStep<S>)
            throw std::invalid_argument("weight must have outputs and, in bfloat16, an even number of inputs; got " +
                                        sizes_of(weight) + ".");
        const S* b = bias ? numbers<S>(*bias, "bias", {outs}) : nullptr;
        nb::gil_scoped_release free;
        return Packed<S>(w, b, outs, ins);
    }

    std::shared_ptr<Machine> machine_;
    Packed<S> packed_;
};

}  // namespace specserve
