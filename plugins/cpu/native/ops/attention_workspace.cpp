#include "ops/attention_workspace.hpp"

#include <algorithm>
#include <utility>

namespace specserve {

size_t partial_bytes(int num_queries, int head_dim) {
    size_t count = static_cast<size_t>(num_queries);
    return 2 * round_up_to_line(count * sizeof(float)) +
           round_up_to_line(count * padded_head_dim(head_dim) * sizeof(float));
}

PartialAttention partial_at(char* memory, int num_queries) {
    size_t row = round_up_to_line(static_cast<size_t>(num_queries) * sizeof(float));
    return {reinterpret_cast<float*>(memory), reinterpret_cast<float*>(memory + row),
            reinterpret_cast<float*>(memory + 2 * row)};
}

template <typename S>
void AttentionWorkspace<S>::resize(int max_queries, int max_heads, const HeadShape& heads) {
    size_t kv_heads = static_cast<size_t>(heads.num_kv_heads), count = static_cast<size_t>(max_queries);
    size_t tile_bytes = round_up_to_line(count * static_cast<size_t>(heads.head_dim) * sizeof(S));
    size_t len_bytes = round_up_to_line(count * sizeof(int)), slot_bytes = kSegmentKeys * sizeof(int64_t);
    int few = std::min(max_queries, kFewQueries);
    size_t part_bytes = partial_bytes(max_queries, heads.head_dim);
    size_t call_bytes = std::max(part_bytes, partial_bytes(max_heads * few, heads.head_dim));
    size_t scratch_bytes = std::max(attention_scratch_bytes(1, max_queries, heads.head_dim),
                                    attention_scratch_bytes(max_heads, few, heads.head_dim));
    memory_.resize(tile_bytes * (kv_heads + 1) + len_bytes + 2 * slot_bytes + part_bytes * kv_heads + call_bytes +
                   round_up_to_line(scratch_bytes) + 64);
    char* end = align_to_line(memory_);
    auto take = [&](size_t bytes) { return std::exchange(end, end + bytes); };
    queries = reinterpret_cast<S*>(take(tile_bytes * kv_heads));
    outputs = reinterpret_cast<S*>(take(tile_bytes));
    kv_lens = reinterpret_cast<int*>(take(len_bytes));
    for (int64_t*& list : slots) list = reinterpret_cast<int64_t*>(take(slot_bytes));
    states = take(part_bytes * kv_heads);
    partial = take(call_bytes);
    scratch = end;
}

template struct AttentionWorkspace<Bf16>;
template struct AttentionWorkspace<float>;

}  // namespace specserve
