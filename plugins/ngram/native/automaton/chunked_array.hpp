// An array that grows without moving its elements: appending never stalls, and a small array wastes little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace ngram {

// The first chunk grows by reallocation up to kChunk elements; further chunks are allocated with that size.
template <typename T>
class ChunkedArray {
    static_assert(std::is_trivially_copyable_v<T>, "elements are moved and dropped as bytes");

   public:
    static constexpr uint32_t kShift = 12;
    static constexpr uint32_t kChunk = 1u << kShift;

    T& operator[](uint32_t i) { return chunks_[i >> kShift].get()[i & (kChunk - 1)]; }
    const T& operator[](uint32_t i) const { return chunks_[i >> kShift].get()[i & (kChunk - 1)]; }

    uint32_t size() const { return size_; }

    // Allocates `count` contiguous, uninitialized elements; returns the index of the first. count <= kChunk.
    uint32_t append(uint32_t count) {
        uint32_t offset = size_ & (kChunk - 1);
        if (offset + count > kChunk && offset != 0) size_ += kChunk - offset;  // a run lies within one chunk
        grow(size_ + count);
        uint32_t first = size_;
        size_ += count;
        return first;
    }

    // Frees the last chunk; false if there is none. Only for an array that is no longer used.
    bool release_chunk() {
        if (chunks_.empty()) return false;
        chunks_.pop_back();
        return true;
    }

    size_t bytes() const {
        size_t elements = chunks_.empty() ? 0 : first_capacity_ + (chunks_.size() - 1) * size_t{kChunk};
        return elements * sizeof(T) + chunks_.capacity() * sizeof(chunks_[0]);
    }

   private:
    struct Free {
        void operator()(T* p) const { std::free(p); }
    };

    void grow(uint32_t needed) {
        if (needed <= first_capacity_) return;
        if (first_capacity_ < kChunk) grow_first_chunk(needed);
        while (size_t{chunks_.size()} * kChunk < needed) {
            T* fresh = static_cast<T*>(std::malloc(kChunk * sizeof(T)));
            if (fresh == nullptr) throw std::bad_alloc();
            chunks_.emplace_back(fresh);
        }
    }

    void grow_first_chunk(uint32_t needed) {
        uint32_t capacity = first_capacity_ ? first_capacity_ : 64;
        while (capacity < needed && capacity < kChunk) capacity *= 2;
        if (chunks_.empty()) chunks_.emplace_back();
        T* grown = static_cast<T*>(std::realloc(static_cast<void*>(chunks_[0].get()), capacity * sizeof(T)));
        if (grown == nullptr) throw std::bad_alloc();  // the old chunk is untouched
        chunks_[0].release();
        chunks_[0].reset(grown);
        first_capacity_ = capacity;
    }

    std::vector<std::unique_ptr<T, Free>> chunks_;
    uint32_t first_capacity_ = 0;
    uint32_t size_ = 0;
};

}  // namespace ngram
