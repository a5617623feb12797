// A linear map's own packed copy of its weights, in large pages where the system gives them.
#pragma once

#include <cstring>
#include <memory>

#include "kernels/kernel_table.hpp"

namespace specserve {

// Zeroed memory for numbers of a model, from chunks in large pages that neighbouring weights share; a chunk goes back
// to the system with the last of them.
template <typename S>
class Memory {
   public:
    explicit Memory(size_t count);
    S* get() const { return static_cast<S*>(memory_.get()); }

   private:
    std::shared_ptr<void> memory_;
};

template <typename S>
class Packed {
   public:
    // weight: [outs][ins], bias: [outs] or null
    Packed(const S* weight, const S* bias, int outs, int ins);

    const Linear<S>& linear() const { return linear_; }

   private:
    Linear<S> shape_;
    Memory<S> panels_;
    Memory<S> bias_;
    Linear<S> linear_;
};

}  // namespace specserve
