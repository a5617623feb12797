// The weights of a linear map, packed once into the panels that the kernels read.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "runtime/coded_weights.hpp"
#include "runtime/huge_page_buffer.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

// Weights in rows of integers: weight[out][in] = integers[out][in] * scales[out][in / group_size].
struct QuantizedRows {
    const int8_t* integers;
    const float* scales;
    int group_size;

    int groups(int in_features) const { return ceil_div(in_features, group_size); }
};

// What 8-bit weights are multiplied by: rows of the model's dtype, or rows that are quantised first.
enum class InputKind { kModelDtype, kQuantized };

template <typename S>
class PackedWeights {
   public:
    // weight: [out_features][in_features], bias: [out_features] or null
    PackedWeights(ThreadPool& pool, const S* weight, const S* bias, int out_features, int in_features);
    PackedWeights(ThreadPool& pool, const QuantizedRows& weight, InputKind inputs, const S* bias, int out_features,
                  int in_features);

    PackedWeights(std::unique_ptr<CodedMatrix> coded, InputKind inputs, const S* bias);

    const Linear<S>& linear() const { return linear_; }
    const CodedMatrix* coded() const { return coded_.get(); }
    bool has_integers() const { return coded_ || linear_.scales; }

    // The weights of one output: [in_features], each as float32 has it. Of integers alone.
    void widen(int output, float* weights) const;

   private:
    template <typename W, typename Offset>
    void pack_panels(ThreadPool& pool, const W* weight, Offset offset);
    void pack_bias(const S* bias);
    void pack_scales(const QuantizedRows& weight);
    void sum_integers(const QuantizedRows& weight);

    Linear<S> linear_;
    std::unique_ptr<CodedMatrix> coded_;
    HugePageBuffer panels_, bias_, scales_, corrections_;
};

}  // namespace specserve
