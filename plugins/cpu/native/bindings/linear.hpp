// A linear map that Python owns: packed weights, and the machine that multiplies by them.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "bindings/bind.hpp"
#include "bindings/coded.hpp"
#include "ops/linear.hpp"
#include "runtime/packed_weights.hpp"
#include "runtime/quantize.hpp"

namespace specserve {

constexpr int kMaxQuantizedInputs = 1 << 17;  // 2^17 products of 127 * 127 are less than 2^31

// The groups of inputs that share a scale.
template <typename S>
int checked_groups(int group_size, int in_features) {
    if (group_size < 1 || group_size % kVnni<S>)
        throw std::invalid_argument("group_size must be positive and, in bfloat16, even; got " +
                                    std::to_string(group_size) + ".");
    return ceil_div(in_features, group_size);
}

// weight: [out, in] -> integers: int8 of that shape, and scales: [out, groups].
template <typename S>
void quantize_weight(const Machine& machine, const Array& weight, int group_size, const Array& integers,
                     const Array& scales) {
    const S* from = checked_data<S>(weight, "weight", {kAny, kAny});
    int rows = static_cast<int>(weight.shape(0)), columns = static_cast<int>(weight.shape(1));
    int8_t* to = checked_data<int8_t>(integers, "integers", {rows, columns});
    float* to_scales = checked_data<float>(scales, "scales", {rows, checked_groups<S>(group_size, columns)});
    bool is_finite;
    {
        nb::gil_scoped_release no_gil;
        is_finite = quantize(*machine.pool, from, rows, columns, group_size, to, to_scales);
    }
    if (!is_finite) throw std::invalid_argument("weight must be finite; got an infinite one or not a number.");
}

template <typename S>
class PackedLinear {
   public:
    PackedLinear(std::shared_ptr<Machine> machine, const Array& weight, const std::optional<Array>& bias)
        : machine_(std::move(machine)), packed_(pack(weight, bias)) {}
    PackedLinear(std::shared_ptr<Machine> machine, const Array& integers, const Array& scales, int group_size,
                 const std::string& inputs, const std::optional<Array>& bias)
        : machine_(std::move(machine)), packed_(pack(integers, scales, group_size, inputs, bias)) {}

    PackedLinear(std::shared_ptr<Machine> machine, const nb::iterable& parts, const std::string& inputs,
                 const std::optional<Array>& bias)
        : machine_(std::move(machine)), packed_(pack(parts, inputs, bias)) {}

    // What `outputs` are of the weight's rows: out: [outputs][in_features]. Only of integers.
    void rows(const Array& outputs, const Array& out) const {
        if (!packed_.has_integers()) throw std::invalid_argument("only weights of 8 bits and fewer can be read again.");
        const Linear<S>& w = packed_.linear();
        const int64_t* wanted = checked_data<int64_t>(outputs, "outputs", {kAny});
        int count = static_cast<int>(outputs.shape(0));
        S* to = checked_data<S>(out, "out", {count, w.in_features});
        for (int i = 0; i < count; ++i)
            if (wanted[i] < 0 || wanted[i] >= w.out_features)
                throw std::invalid_argument("outputs must be from 0 to " + std::to_string(w.out_features - 1) +
                                            "; got " + std::to_string(wanted[i]) + ".");
        nb::gil_scoped_release no_gil;
        machine_->pool->run(1, [&](ThreadPool::Team& team) {
            team.parallel_for_ranges(count, [&](int begin, int end) {
                std::vector<float> row(static_cast<size_t>(w.in_features));
                for (int i = begin; i < end; ++i) {
                    packed_.widen(static_cast<int>(wanted[i]), row.data());
                    for (int j = 0; j < w.in_features; ++j)
                        to[ptrdiff_t{i} * w.in_features + j] = rounded<S>(row[static_cast<size_t>(j)]);
                }
            });
        });
    }

    void forward(const Array& x, const Array& out) const {
        const Linear<S>& w = packed_.linear();
        const S* inputs = checked_data<S>(x, "x", {kAny, w.in_features}, 1);
        int rows = static_cast<int>(x.shape(0));
        S* outputs = checked_data<S>(out, "out", {rows, w.out_features}, 1);
        const KernelTable<S>& table = kernel_table<S>(machine_->kernels);
        nb::gil_scoped_release no_gil;
        if (rows == 0) return;
        InputQuantizer<S> quantizer;
        quantizer.add(w);
        quantizer.reserve(rows);
        run_kernels(*machine_->pool, table, 2, [&](ThreadPool::Team& team) {
            multiply(team, table, w, quantizer, {inputs, x.stride(0), rows}, {outputs, out.stride(0), rows});
        });
    }

    const Linear<S>& linear() const { return packed_.linear(); }

   private:
    PackedWeights<S> pack(const Array& weight, const std::optional<Array>& bias) const {
        const S* w = checked_data<S>(weight, "weight", {kAny, kAny});
        auto [out_features, in_features] = checked_shape(weight);
        const S* b = bias ? checked_data<S>(*bias, "bias", {out_features}) : nullptr;
        nb::gil_scoped_release no_gil;
        return PackedWeights<S>(*machine_->pool, w, b, out_features, in_features);
    }

    PackedWeights<S> pack(const Array& integers, const Array& scales, int group_size, const std::string& inputs,
                          const std::optional<Array>& bias) const {
        const int8_t* w = checked_data<int8_t>(integers, "integers", {kAny, kAny});
        auto [out_features, in_features] = checked_shape(integers);
        InputKind kind = checked_inputs(inputs);
        if (kind == InputKind::kQuantized) check_quantizable(group_size, in_features);
        int groups = checked_groups<S>(group_size, in_features);
        const float* s = checked_data<float>(scales, "scales", {out_features, groups});
        const S* b = bias ? checked_data<S>(*bias, "bias", {out_features}) : nullptr;
        nb::gil_scoped_release no_gil;
        return PackedWeights<S>(*machine_->pool, QuantizedRows{w, s, group_size}, kind, b, out_features, in_features);
    }

    PackedWeights<S> pack(const nb::iterable& parts, const std::string& inputs,
                          const std::optional<Array>& bias) const {
        InputKind kind = checked_inputs(inputs);
        std::unique_ptr<CodedMatrix> packed = packed_parts(*machine_->pool, parts);
        const S* b = bias ? checked_data<S>(*bias, "bias", {packed->outputs()}) : nullptr;
        return PackedWeights<S>(std::move(packed), kind, b);
    }

    static InputKind checked_inputs(const std::string& name) {
        if (name == "auto") return InputKind::kModelDtype;
        if (name == "int8") return InputKind::kQuantized;
        throw std::invalid_argument("inputs must be auto or int8; got " + name + ".");
    }

    // Sums over a group must fit into 32 bits.
    static void check_quantizable(int group_size, int in_features) {
        if (group_size < in_features && group_size % kVnni<QuantizedInput>)
            throw std::invalid_argument("with inputs of 8 bits group_size must be a multiple of 4; got " +
                                        std::to_string(group_size) + ".");
        if (std::min(group_size, in_features) > kMaxQuantizedInputs)
            throw std::invalid_argument("at most " + std::to_string(kMaxQuantizedInputs) +
                                        " inputs of 8 bits can share a scale; got " +
                                        std::to_string(std::min(group_size, in_features)) + ".");
    }

    static std::pair<int, int> checked_shape(const Array& weight) {
        int out_features = static_cast<int>(weight.shape(0)), in_features = static_cast<int>(weight.shape(1));
        if (out_features < 1 || in_features < 1 || in_features % kVnni<S>)
            throw std::invalid_argument("weight must have outputs and, in bfloat16, an even number of inputs; got " +
                                        shape_string(weight) + ".");
        return {out_features, in_features};
    }

    std::shared_ptr<Machine> machine_;
    PackedWeights<S> packed_;
};

}  // namespace specserve
