#include "runtime/packed_weights.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace specserve {

namespace {

constexpr size_t kLine = 64, kLargePage = 2u << 20, kChunk = 8 * kLargePage;

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::shared_ptr<char> new_chunk(size_t bytes) {
    void* memory = std::aligned_alloc(kLargePage, bytes);
    if (!memory) throw std::bad_alloc();
#ifdef __linux__
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return {static_cast<char*>(memory), [](char* p) { std::free(p); }};
}

// The chunk that is being filled. It belongs to those who have a part of it.
std::shared_ptr<char> take(size_t bytes) {
    static std::mutex mutex;
    static std::weak_ptr<char> current;
    static size_t used = 0, size = 0;
    std::lock_guard<std::mutex> lock(mutex);
    std::shared_ptr<char> chunk = current.lock();
    if (!chunk || used + bytes > size) {
        size = rounded_up(bytes > kChunk ? bytes : kChunk, kLargePage);
        used = 0;
        current = chunk = new_chunk(size);
    }
    std::shared_ptr<char> part(chunk, chunk.get() + used);
    used += bytes;
    return part;
}

}  // namespace

template <typename S>
Memory<S>::Memory(size_t count) {
    if (count == 0) return;
    size_t bytes = rounded_up(count * sizeof(S), kLine);
    std::shared_ptr<char> part = take(bytes);
    std::memset(part.get(), 0, bytes);
    memory_ = std::move(part);
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
        for (int in = 0; in < ins; in += kStep<S>)
            std::memcpy(panel + ptrdiff_t{in} * kLanes + out % kLanes * kStep<S>, row + in,
                        static_cast<size_t>(std::min(kStep<S>, ins - in)) * sizeof(S));
    }
    if (bias) std::memcpy(bias_.get(), bias, static_cast<size_t>(outs) * sizeof(S));
}

template class Memory<Bf16>;
template class Memory<float>;
template class Packed<Bf16>;
template class Packed<float>;

}  // namespace specserve
