// The kernels of one instruction set as a table of functions. Each runs one task of a batch, in one thread.
#pragma once

#include "kernels/coded.hpp"
#include "kernels/common.hpp"
#include "kernels/gated_delta.hpp"
#include "kernels/sampling_table.hpp"
#include "kernels/short_conv.hpp"

namespace specserve {

// A linear map, packed into panels of sixteen outputs, padded with zeros: [panel][K group][16 outputs][kVnni inputs] of
// S, or [panel][K group][kVnni inputs][16 outputs] of Int8<S>, where there are scales: a weight is its integer times
// the scale of its output and its group of inputs. Where there are corrections, inputs are quantised too, and panels
// are [panel][K group][16 outputs][4 inputs]. Weights of few bits are `coded`, and nothing but the bias is set then.
template <typename S>
struct Linear {
    const void* panels;
    const S* bias;  // padded to whole panels; or null
    int in_features, out_features;
    const float* scales = nullptr;  // [group][outputs, padded to whole panels]; null for weights of type S
    int group_size = 0;             // inputs that share a scale: a multiple of `inputs_of_k_group`
    // [group][outputs, padded]: kInputOffset times the sum of the integers; null if inputs are not quantised
    const int32_t* corrections = nullptr;
    CodedWeights coded = {};

    // Whether rows are brought into another form before they are multiplied.
    bool prepares_inputs() const { return corrections || coded; }
    int inputs_of_k_group() const { return corrections ? kVnni<QuantizedInput> : kVnni<S>; }
    int k_groups() const { return ceil_div(in_features, inputs_of_k_group()); }
    int num_scale_groups() const { return scales ? ceil_div(in_features, group_size) : 0; }
    int num_panels() const { return ceil_div(out_features, kLanes); }
    // Weights from one panel to the next.
    ptrdiff_t panel_stride() const { return ptrdiff_t{k_groups()} * kLanes * inputs_of_k_group(); }
    const void* panel(int index) const {
        if (coded) return index < num_panels() ? coded.panels[index].codes : nullptr;
        size_t bytes = scales ? sizeof(Int8<S>) : sizeof(S);
        return static_cast<const char*>(panels) + index * panel_stride() * static_cast<ptrdiff_t>(bytes);
    }
};

// A matrix with contiguous rows.
template <typename S>
struct Rows {
    S* data;
    ptrdiff_t stride;
    int count;
};

// Rows in 8 bits: an input is (value - kStoredOffset) times the scale of its row and its group, where
// kStoredOffset is that of the instruction set.
struct QuantizedInputs {
    const QuantizedInput* data;
    ptrdiff_t stride;     // a multiple of 64, so that there is a whole last K group
    const float* scales;  // [count][groups]
};

// What a linear map multiplies. quantized: the same rows, for a map that has corrections; coded: for coded weights.
template <typename S>
struct Inputs {
    Rows<const S> rows;
    QuantizedInputs quantized = {};
    CodedInputs coded = {};
};

// Pages of keys and values that a thread reads after linear maps. They are prefetched while it multiplies several
// blocks of rows, by the blocks that prefetch no weights: memory works while the multipliers do.
struct PagesAhead {
    const char* keys = nullptr;
    const char* values = nullptr;
    const ptrdiff_t* pages = nullptr;  // [count]: where each begins, among the keys and among the values
    int count = 0;
    int lines_of_page = 0;
    int line = 0;  // the next one: of a page's keys, then of its values, then of the next page

    bool is_done() const { return line == 2 * count * lines_of_page; }
    // The next lines, while there are some: at most `most`, which becomes how many.
    const char* take(int& most) {
        int part = line / lines_of_page, at = line % lines_of_page;
        if (most > lines_of_page - at) most = lines_of_page - at;
        line += most;
        return (part % 2 ? values : keys) + pages[part / 2] + ptrdiff_t{at} * 64;
    }
};

// What a thread reads behind a block of panels: the next weights, and pages behind all of the map's.
struct ReadNext {
    const void* weights;
    PagesAhead* pages;
};

// Panels [begin, end) of a linear map.
struct PanelRange {
    int begin, end;
    const void* next = nullptr;  // weights that the thread reads after these, if known: prefetched with the last panels
    PagesAhead* ahead = nullptr;  // what it reads after the weights
};

// The weight of a norm: of S, or in float32 where it multiplies before the rounding. Null if there is no norm.
template <typename S>
struct NormWeight {
    const S* rounded = nullptr;
    const float* wide = nullptr;

    explicit operator bool() const { return rounded || wide; }
};

struct SwigluClamp {
    float gain = 1.702f, limit = 7.0f;
};

// The rotation angles of one position.
struct RopeAngles {
    const float* cos;
    const float* sin;  // first half negated, for the rotate-half form
    int rotary_dim;    // only the first `rotary_dim` elements of a head are rotated
};

// The keys and values of one layer in the cache; a slot holds one token.
struct KVCacheLayer {
    char* keys;  // null if another attention backend owns the cache
    char* values;
    int num_heads, head_dim;
    ptrdiff_t head_bytes;  // of a head's key, or of its value: `KVLayout::head_bytes`

    ptrdiff_t slot_bytes() const { return num_heads * head_bytes; }
};

// What a layer does with its scores.
struct ScoreRules {
    int window = 0;         // a query sees only the last `window` keys of its sequence; 0 for all
    float soft_cap = 0.0f;  // a score s becomes soft_cap * tanh(s / soft_cap), before keys are masked; 0 for none
    const float* sinks = nullptr;  // [num_heads]: a further score of every query, which has no value; null for none
};

// Keys and values of the thread's next segment: prefetched while it computes this one.
struct KVPrefetch {
    const char* keys;
    const char* values;
    const int64_t* slots;
    int count;
};

// A tile of queries against one segment of keys, for `num_heads` neighbouring KV heads, at most `KVLayout::max_heads`.
template <typename S>
struct AttentionArgs {
    const S* queries;    // [num_heads][num_queries][head_dim]; num_queries = rows * query heads per KV head
    const int* kv_lens;  // [num_queries]: how many keys of its sequence a query sees
    ScoreRules rules;
    int min_key;  // keys before this position of the sequence are hidden
    int num_heads, num_queries;
    const char* keys;  // of the first of the KV heads in the layer's cache: of the first slot, or of the first page
    const char* values;
    const int64_t* slots;     // [num_keys]
    ptrdiff_t slot_bytes;     // from one slot to the next; a page has as many times more as it has slots
    int first_key, num_keys;  // the segment's position in the sequence, and its size
    int head_dim;
    float scale;
    KVPrefetch next;
};

INLINE size_t padded_head_dim(int head_dim) { return static_cast<size_t>(ceil_div(head_dim, kLanes)) * kLanes; }

// Unnormalized attention output over some segments, with the state of the online softmax.
struct PartialAttention {
    float* row_max;  // [queries], of scores * log2(e)
    float* row_sum;  // [queries], of 2^(score - row_max); 0 where a query has seen no key
    float* acc;      // [queries][padded head_dim]

    PartialAttention from(int query, int head_dim) const {
        return {row_max + query, row_sum + query, acc + query * static_cast<ptrdiff_t>(padded_head_dim(head_dim))};
    }
};

// How keys and values lie in the cache.
template <typename S>
struct KVLayout {
    int page_slots;     // neighbouring slots whose elements are interleaved
    int element_bytes;  // of a number: of S, or of an integer that is multiplied by a scale
    int scale_bytes;    // of the scale of a key, or of a value; 0 if there is none
    // Writes one token of one KV head. The cache holds finite numbers only: a masked key has probability 0, and
    // 0 * NaN is NaN.
    void (*store_kv)(const S* key, const S* value, KVCacheLayer, int head, int64_t slot, float key_limit);
    // Copies one token of one KV head to and from memory, `head_bytes` for the key and as many for the value.
    void (*read_slot)(KVCacheLayer, int head, int64_t slot, char* key, char* value);
    void (*write_slot)(const char* key, const char* value, KVCacheLayer, int head, int64_t slot);
    // out: of num_heads * num_queries queries.
    void (*attend_segment)(const AttentionArgs<S>&, PartialAttention out, char* scratch);
    int max_heads;  // of one call of attend_segment

    ptrdiff_t head_bytes(int head_dim) const { return ptrdiff_t{head_dim} * element_bytes + scale_bytes; }
};

template <typename S>
struct LinearTable {
    void (*linear)(const Linear<S>&, const Inputs<S>&, PanelRange, Rows<S> out);
    void (*linear_add)(const Linear<S>&, const Inputs<S>&, PanelRange, Rows<S> out);
    void (*linear_swiglu)(const Linear<S>&, const Inputs<S>&, PanelRange, Rows<S> out);
    void (*linear_logits)(const Linear<S>&, const Inputs<S>&, PanelRange, Rows<float> out);
    // One row in 8 bits, symmetric, to the nearest. to: as many as x; scales: [groups].
    void (*quantize_inputs)(const S* x, int size, int group_size, QuantizedInput* to, float* scales);
    // The same in blocks: [blocks].
    void (*quantize_blocks)(const S* x, int size, InputBlock* to);
};

template <typename S>
struct KernelTable : LinearTable<S> {
    // Around all other calls of a thread, see runtime/kernel_job.hpp.
    void (*begin_job)();
    void (*end_job)();
    void (*rms_norm)(Rows<const S> x, const S* weight, float eps, int size, Rows<S> out);
    void (*rms_norm_wide)(Rows<const S> x, const float* weight, float eps, int size, Rows<S> out);
    void (*silu_and_multiply)(Rows<const S> gate_up, int size, Rows<S> out);
    void (*gelu_and_multiply)(Rows<const S> gate_up, int size, Rows<S> out);
    void (*clamped_swiglu)(Rows<const S> gate_up, int size, SwigluClamp, Rows<S> out);
    void (*scale_inplace)(S* x, float scale, int size);
    void (*add_inplace)(const S* x, S* out, int size);
    void (*apply_rope)(S* head, RopeAngles);
    // out = x times the sigmoids of the gates, rounded to S; each gate is of `width` neighbours in x. `out` may be x.
    void (*gate)(const S* x, const S* gates, int num_gates, int width, S* out);
    // Of mixtures of experts. out[i] = x[i]; x rounded to S; out[i] = exp(x[i] - row_max); sigmoids, rounded to S; and
    // the sum of rows times their weights, in order in float32, rounded once.
    void (*widen)(const S* x, int size, float* out);
    void (*round_inplace)(float* x, int size);
    void (*exp_shifted)(const float* x, int size, float row_max, float* out);
    void (*sigmoids)(const S* x, int size, float* out);
    void (*weighted_sum)(const S* const* rows, const float* weights, int count, int size, S* out);
    void (*merge_segments)(PartialAttention into, PartialAttention later, int num_queries, int head_dim);
    // sinks: [group_size], of the query heads of the KV head.
    void (*add_sinks)(PartialAttention, const float* sinks, int group_size, int num_queries, int head_dim);
    void (*normalize)(PartialAttention, int num_queries, int head_dim, S* out);
    KVLayout<S> by_slot, in_panels, by_slot_int8, in_panels_int8;
    void (*short_conv)(const ShortConv<S>&, Rows<const S> in, const PrecedingSlots&, ChannelRange, Rows<S> out);
    GatedDeltaTable<S> gated_delta;
};

struct Kernels {
    const char* name;
    KernelTable<Bf16> bf16;
    KernelTable<float> f32;
    SamplingTable sampling;
};

template <typename S>
const KernelTable<S>& kernel_table(const Kernels& kernels) {
    if constexpr (sizeof(S) == 2)
        return kernels.bf16;
    else
        return kernels.f32;
}

// Bytes of `attend_segment`'s scratch memory. num_queries: of each head.
INLINE size_t attention_scratch_bytes(int num_heads, int num_queries, int head_dim) {
    size_t heads = static_cast<size_t>(num_heads), rows = heads * static_cast<size_t>(num_queries);
    return (1 + heads) * kSegmentKeys * padded_head_dim(head_dim) * 4 + rows * kSegmentKeys * 8 +
           heads * 2 * kSegmentKeys * 4;
}

}  // namespace specserve
