// Memory of attention: partial results as bytes, and the buffers of one thread.
#pragma once

#include <vector>

#include "kernels/kernel_table.hpp"

namespace specserve {

struct HeadShape {
    int num_heads, num_kv_heads, head_dim;
    int group_size() const { return num_heads / num_kv_heads; }  // query heads per KV head
    bool operator==(const HeadShape&) const = default;
};

inline size_t round_up_to_line(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The first cache line within `memory`.
inline char* align_to_line(std::vector<char>& memory) {
    return memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
}

// Up to this many queries of a KV head, a call of `KVLayout::attend_segment` takes several heads. It waits for memory
// then, and reads longer runs of it.
constexpr int kFewQueries = 16;

size_t partial_bytes(int num_queries, int head_dim);
PartialAttention partial_at(char* memory, int num_queries);

// No two threads share any of it.
template <typename S>
struct AttentionWorkspace {
    S* queries;  // [KV heads][max_queries][head_dim]
    S* outputs;  // [max_queries][head_dim]
    int* kv_lens;
    int64_t* slots[2];  // [kSegmentKeys]: of this segment and of the next
    char* states;       // [KV heads] partial results over the segments so far
    char* partial;      // of the heads of one call
    char* scratch;

    // max_heads: of one call of `KVLayout::attend_segment`
    void resize(int max_queries, int max_heads, const HeadShape& heads);

   private:
    std::vector<char> memory_;
};

}  // namespace specserve
