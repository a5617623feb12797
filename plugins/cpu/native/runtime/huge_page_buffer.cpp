#include "runtime/huge_page_buffer.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <mutex>
#include <new>

namespace specserve {

namespace {

constexpr size_t kCacheLine = 64, kHugePage = 2u << 20, kChunk = 8 * kHugePage;

size_t round_up(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

// A mapping of its own: malloc would keep the chunks of adapters that are gone, and put small objects into their huge
// pages.
std::shared_ptr<char> allocate_chunk(size_t bytes) {
    size_t mapped = bytes + kHugePage;
    void* begin = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) throw std::bad_alloc();
    char* first = static_cast<char*>(begin);
    size_t before = round_up(reinterpret_cast<uintptr_t>(first), kHugePage) - reinterpret_cast<uintptr_t>(first);
    if (before) munmap(first, before);
    if (before < kHugePage) munmap(first + before + bytes, kHugePage - before);
#ifdef MADV_HUGEPAGE  // Linux's: macOS and kernels without huge pages give their own pages
    madvise(first + before, bytes, MADV_HUGEPAGE);
#endif
    return {first + before, [bytes](char* chunk) { munmap(chunk, bytes); }};
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

HugePageBuffer::HugePageBuffer(size_t bytes) {
    if (bytes) memory_ = allocate(round_up(bytes, kCacheLine));
}

}  // namespace specserve
