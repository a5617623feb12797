// A linear map's own packed copy of its weights, in large pages where the system gives them.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "kernels.hpp"

namespace specserve {

// Zeroed memory for numbers of a model: aligned to a cache line, or to a large page when it fills one.
template <typename S>
class Memory {
   public:
    explicit Memory(size_t count);
    S* get() const { return memory_.get(); }

   private:
    struct Free {
        void operator()(void* p) const { std::free(p); }
    };
    std::unique_ptr<S, Free> memory_;
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
