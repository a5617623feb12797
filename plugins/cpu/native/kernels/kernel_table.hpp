// What one instruction set offers: a table of functions, each of which does one task of a batch in one thread.
#pragma once

#include "kernels/common.hpp"
#include "kernels/sampling_table.hpp"

namespace specserve {

// A linear map packed for the lanes: panels of sixteen outputs; bias padded likewise, or null.
template <typename S>
struct Linear {
    const S* panels;
    const S* bias;
    int ins, outs;

    int groups() const { return divided_up(ins, kStep<S>); }
    ptrdiff_t panel_stride() const { return ptrdiff_t{groups()} * kLanes * kStep<S>; }
    int num_panels() const { return divided_up(outs, kLanes); }
};

// `rows` rows of numbers, `stride` apart.
template <typename S>
struct Rows {
    S* at;
    ptrdiff_t stride;
    int count;
};

// Panels [begin, end) of a map, and what the thread will want after them, null if unknown: fetched with the last of
// them.
struct Panels {
    int begin, end;
    const void* after = nullptr;
};

// Heads of one row: rotation tables for its position, sin signed for the half-split form.
struct Rotary {
    const float* cos;
    const float* sin;
    int size;  // numbers of a head that turn, the first ones
};

// One layer's keys and values in the cache, in slots of one token each.
template <typename S>
struct CacheLayer {
    S* keys;  // null where somebody else's attention has them
    S* values;
    int heads, dim;

    ptrdiff_t slot_size() const { return ptrdiff_t{heads} * dim; }
};

// Keys and values that the thread will probably want next: fetched while it computes.
template <typename S>
struct Ahead {
    const S* keys;
    const S* values;
    const int64_t* slots;
    int count;
};

// One tile of query rows against one segment of keys, for one key head.
template <typename S>
struct Attend {
    const S* queries;    // [count][head_dim]: rows times heads of the group
    const int* lengths;  // per query: keys that it sees, counted from the request's first
    int window;          // of these only the last so many; 0: all
    int count;
    const S* keys;  // the layer's cache, this key head's first number
    const S* values;
    const int64_t* slots;   // of the segment's keys
    ptrdiff_t slot_stride;  // numbers between two slots
    int first, num_keys;    // the segment's first key and how many it has
    int head_dim;
    float scale;
    Ahead<S> ahead;
};

// Per query: the running maximum, the sum of weights and the weighted values, [count], [count], [count][padded dim].
struct Partial {
    float* most;
    float* total;
    float* values;
};

// How keys and values lie in the cache.
template <typename S>
struct Layout {
    int slots;  // neighbours that share their memory
    // A head's key and value into a slot. The cache holds finite numbers only: a masked key weighs 0, and 0 * NaN is
    // NaN.
    void (*keep)(const S* key, const S* value, CacheLayer<S>, int head, int64_t slot, float key_limit);
    void (*take)(CacheLayer<S>, int head, int64_t slot, S* key, S* value);
    void (*attend)(const Attend<S>&, Partial out, char* scratch);
};

template <typename S>
struct Table {
    void (*store)(const Linear<S>&, Rows<const S> x, Panels, Rows<S> out);
    void (*add)(const Linear<S>&, Rows<const S> x, Panels, Rows<S> out);
    void (*gated)(const Linear<S>&, Rows<const S> x, Panels, Rows<S> out);
    void (*logits)(const Linear<S>&, Rows<const S> x, Panels, Rows<float> out);
    void (*norm)(Rows<const S> x, const S* gain, float eps, int size, Rows<S> out);
    void (*activate)(Rows<const S> gate_up, int size, Rows<S> out);
    void (*plus)(const S* from, S* to, int size);
    void (*rotate)(S* head, Rotary);
    void (*merge)(Partial into, Partial from, int count, int head_dim);
    void (*conclude)(Partial, int count, int head_dim, S* out);
    Layout<S> by_slot, in_panels;
};

struct Kernels {
    const char* name;
    Table<Bf16> bf16;
    Table<float> f32;
    Sampling sampling;
};

template <typename S>
const Table<S>& table_of(const Kernels& kernels) {
    if constexpr (sizeof(S) == 2)
        return kernels.bf16;
    else
        return kernels.f32;
}

// Bytes that `attend` needs of scratch memory.
size_t attend_scratch(int count, int head_dim);

}  // namespace specserve
