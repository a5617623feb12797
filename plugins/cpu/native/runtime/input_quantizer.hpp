// The inputs of linear maps that multiply other rows than those of the model's dtype: quantised, or widened, once and
// shared by the tasks that multiply them. Does nothing for all other maps.
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
        if (w.coded) {
            ptrdiff_t& most = w.coded.wide_inputs ? most_wide_ : most_blocks_;
            most = std::max(most, stride(w));
        } else if (w.corrections) {
            most_values_ = std::max(most_values_, stride(w));
            most_scales_ = std::max(most_scales_, w.num_scale_groups());
        }
    }
    void reserve(int rows) {
        auto grow = [rows](auto& buffer, ptrdiff_t size) {
            size_t needed = static_cast<size_t>(rows) * static_cast<size_t>(size);
            if (buffer.size() < needed) buffer.resize(needed);
        };
        grow(values_, most_values_);
        grow(scales_, most_scales_);
        grow(blocks_, most_blocks_);
        grow(wide_, most_wide_);
    }

    // Rows [begin, begin + count) of x. Threads may do others at the same time.
    void quantize(const KernelTable<S>& table, const Linear<S>& w, Rows<const S> x, int begin, int count) {
        if (!w.prepares_inputs()) return;
        for (ptrdiff_t r = begin; r < begin + count; ++r) {
            const S* row = x.data + r * x.stride;
            if (!w.coded)
                table.quantize_inputs(row, w.in_features, w.group_size, values_.data() + r * stride(w),
                                      scales_.data() + r * w.num_scale_groups());
            else if (w.coded.wide_inputs)
                table.widen(row, w.in_features, wide_.data() + r * stride(w));
            else
                table.quantize_blocks(row, w.in_features, blocks_.data() + r * stride(w));
        }
    }

    // What `w` multiplies, after all rows of x were quantised.
    Inputs<S> inputs(const Linear<S>& w, Rows<const S> x) const { return inputs_from(w, x, 0, x.count); }

    // The same of `count` rows from row `first` on.
    Inputs<S> inputs_from(const Linear<S>& w, Rows<const S> x, int first, int count) const {
        ptrdiff_t row = first, at = row * (w.prepares_inputs() ? stride(w) : 0);
        Inputs<S> all{{x.data + row * x.stride, x.stride, count}};
        if (w.coded)
            all.coded = {blocks_.data() + (w.coded.wide_inputs ? 0 : at), wide_.data() + (w.coded.wide_inputs ? at : 0),
                         stride(w)};
        else if (w.corrections)
            all.quantized = {values_.data() + at, stride(w), scales_.data() + row * w.num_scale_groups()};
        return all;
    }

   private:
    static constexpr int kAlignment = 64;

    // From one row to the next. What is behind a row's values is multiplied by weights of 0. An odd number of cache
    // lines from one row of blocks to the next lets rows lie in different sets of the cache.
    static ptrdiff_t stride(const Linear<S>& w) {
        if (!w.coded) return ptrdiff_t{ceil_div(w.in_features, kAlignment)} * kAlignment;
        if (w.coded.wide_inputs) return ptrdiff_t{ceil_div(w.in_features, kLanes)} * kLanes;
        constexpr int kBlocks = 4;  // three cache lines
        return ptrdiff_t{ceil_div(ceil_div(w.in_features, kBlockInputs), kBlocks) | 1} * kBlocks;
    }

    ptrdiff_t most_values_ = 0, most_blocks_ = 0, most_wide_ = 0;
    int most_scales_ = 0;
    std::vector<QuantizedInput> values_;
    std::vector<float> scales_, wide_;
    std::vector<InputBlock> blocks_;
};

}  // namespace specserve
