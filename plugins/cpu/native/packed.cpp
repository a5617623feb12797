#include "packed.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace specserve {

namespace {
constexpr size_t kLine = 64, kLargePage = 2u << 20;
}

template <typename S>
Memory<S>::Memory(size_t count) {
    size_t bytes = count * sizeof(S), unit = bytes >= kLargePage ? kLargePage : kLine;
    bytes = (bytes + unit - 1) / unit * unit;
    void* memory = std::aligned_alloc(unit, bytes ? bytes : unit);
    if (!memory) throw std::bad_alloc();
#ifdef __linux__
    if (unit == kLargePage) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    std::memset(memory, 0, bytes);
    memory_.reset(static_cast<S*>(memory));
}

template <typename S>
Packed<S>::Packed(const S* weight, const S* bias, int outs, int ins)
    : shape_{nullptr, nullptr, ins, outs},
      panels_(static_cast<size_t>(shape_.num_panels()) * static_cast<size_t>(shape_.panel_stride())),
      bias_(bias ? static_cast<size_t>(shape_.num_panels()) * kLanes : 0),
      linear_{panels_.get(), bias ? bias_.get() : nullptr, ins, outs} {
    for (int out = 0; out < outs; ++out) {
        S* panel = panels_.get() + (out / kLanes) * shape_.panel_stride();
        const S* row = weight + ptrdiff_t{out} * ins;
        for (int in = 0; in < ins; ++in) panel[(in / kStep<S> * kLanes + out % kLanes) * kStep<S> + in % kStep<S>] = row[in];
    }
    if (bias) std::memcpy(bias_.get(), bias, static_cast<size_t>(outs) * sizeof(S));
}

template class Memory<Bf16>;
template class Memory<float>;
template class Packed<Bf16>;
template class Packed<float>;

}  // namespace specserve
