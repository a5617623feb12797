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

constexpr size_t kCacheLine = 64, kHugePage = 2u << 20, kChunk = 8 * kHugePage;

size_t round_up(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

std::shared_ptr<char> allocate_chunk(size_t bytes) {
    void* memory = std::aligned_alloc(kHugePage, bytes);
    if (!memory) throw std::bad_alloc();
#ifdef __linux__
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return {static_cast<char*>(memory), [](char* p) { std::free(p); }};
}

// Bump allocation from the current chunk. The buffers own the chunk; the arena holds only a weak reference.
std::shared_ptr<char> allocate(size_t bytes) {
    static std::mutex mutex;
    static std::weak_ptr<char> current;
    static size_t used = 0, size = 0;
    std::lock_guard<std::mutex> lock(mutex);
    std::shared_ptr<char> chunk = current.lock();
    if (!chunk || used + bytes > size) {
        size = round_up(bytes > kChunk ? bytes : kChunk, kHugePage);
        used = 0;
        current = chunk = allocate_chunk(size);
    }
    std::shared_ptr<char> buffer(chunk, chunk.get() + used);
    used += bytes;
    return buffer;
}

}  // namespace

template <typename S>
HugePageBuffer<S>::HugePageBuffer(size_t count) {
    if (count == 0) return;
    size_t bytes = round_up(count * sizeof(S), kCacheLine);
    std::shared_ptr<char> buffer = allocate(bytes);
    std::memset(buffer.get(), 0, bytes);
    memory_ = std::move(buffer);
}

template <typename S>
PackedWeights<S>::PackedWeights(const S* weight, const S* bias, int out_features, int in_features)
    : shape_{nullptr, nullptr, in_features, out_features},
      panels_(static_cast<size_t>(shape_.num_panels()) * static_cast<size_t>(shape_.panel_stride())),
      bias_(bias ? static_cast<size_t>(shape_.num_panels()) * kLanes : 0),
      linear_{panels_.get(), bias ? bias_.get() : nullptr, in_features, out_features} {
    for (int out = 0; out < out_features; ++out) {
        S* panel = panels_.get() + (out / kLanes) * shape_.panel_stride();
        const S* row = weight + ptrdiff_t{out} * in_features;
        for (int in = 0; in < in_features; in += kVnni<S>)
            std::memcpy(panel + ptrdiff_t{in} * kLanes + out % kLanes * kVnni<S>, row + in,
                        static_cast<size_t>(std::min(kVnni<S>, in_features - in)) * sizeof(S));
    }
    if (bias) std::memcpy(bias_.get(), bias, static_cast<size_t>(out_features) * sizeof(S));
}

template class HugePageBuffer<Bf16>;
template class HugePageBuffer<float>;
template class PackedWeights<Bf16>;
template class PackedWeights<float>;

}  // namespace specserve
