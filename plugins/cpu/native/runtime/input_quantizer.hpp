// The inputs of linear maps that multiply quantised rows: quantised once, and shared by the tasks that multiply them.
// Does nothing for all other maps.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/kernel_table.hpp"

namespace specserve {

template <typename S>
class InputQuantizer {
   public:
    // Room for the inputs of any of the maps that `add` names, for `rows` rows. Not while a job runs.
    void add(const Linear<S>& w) {
        if (!w.corrections) return;
        widest_ = std::max(widest_, stride(w));
        most_scales_ = std::max(most_scales_, w.num_scale_groups());
    }
    void reserve(int rows) {
        grow(values_, static_cast<size_t>(rows) * static_cast<size_t>(widest_));
        grow(scales_, static_cast<size_t>(rows) * static_cast<size_t>(most_scales_));
    }

    // Rows [begin, begin + count) of x. Threads may do others at the same time.
    void quantize(const KernelTable<S>& table, const Linear<S>& w, Rows<const S> x, int begin, int count) {
        if (!w.corrections) return;
        ptrdiff_t values = stride(w), groups = w.num_scale_groups();
        for (ptrdiff_t r = begin; r < begin + count; ++r)
            table.quantize_inputs(x.data + r * x.stride, w.in_features, w.group_size, values_.data() + r * values,
                                  scales_.data() + r * groups);
    }

    // What `w` multiplies, after all rows of x were quantised.
    Inputs<S> inputs(const Linear<S>& w, Rows<const S> x) const {
        return {x, {values_.data(), stride(w), scales_.data()}};
    }

    // The same of `count` rows from row `first` on.
    Inputs<S> inputs_from(const Linear<S>& w, Rows<const S> x, int first, int count) const {
        ptrdiff_t at = first;
        QuantizedInputs quantized{values_.data() + at * stride(w), stride(w),
                                  scales_.data() + at * w.num_scale_groups()};
        return {{x.data + at * x.stride, x.stride, count}, w.corrections ? quantized : QuantizedInputs{}};
    }

   private:
    static constexpr int kAlignment = 64;

    // From one row to the next. What is behind a row's inputs is multiplied by weights of 0.
    static ptrdiff_t stride(const Linear<S>& w) { return ptrdiff_t{ceil_div(w.in_features, kAlignment)} * kAlignment; }
    template <typename T>
    static void grow(std::vector<T>& buffer, size_t size) {
        if (buffer.size() < size) buffer.resize(size);
    }

    ptrdiff_t widest_ = 0;
    int most_scales_ = 0;
    std::vector<QuantizedInput> values_;
    std::vector<float> scales_;
};

}  // namespace specserve
