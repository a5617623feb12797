// The weights of a linear map, packed once into the panels that the kernels read.
#pragma once

#include <cstring>
#include <memory>

#include "kernels/kernel_table.hpp"

namespace specserve {

// Zero-initialized memory from an arena of chunks in huge pages, which neighbouring weights share. A chunk is freed
// with the last buffer in it.
template <typename S>
class HugePageBuffer {
   public:
    explicit HugePageBuffer(size_t count);
    S* get() const { return static_cast<S*>(memory_.get()); }

   private:
    std::shared_ptr<void> memory_;
};

template <typename S>
class PackedWeights {
   public:
    // weight: [out_features][in_features], bias: [out_features] or null
    PackedWeights(const S* weight, const S* bias, int out_features, int in_features);

    const Linear<S>& linear() const { return linear_; }

   private:
    Linear<S> shape_;
    HugePageBuffer<S> panels_;
    HugePageBuffer<S> bias_;
    Linear<S> linear_;
};

}  // namespace specserve
