// What a layer mixes rows with: attention over keys and values, and the gates of its output; or a short convolution or
// a gated delta net.
#include <algorithm>
#include <cstring>

#include "ops/decoder_stack.hpp"

namespace specserve {

namespace {
constexpr int kRowsPerRopeTask = 16;
}

// `count` queries or keys of a row.
template <typename S>
void DecoderStack<S>::norm_and_rotate(const DecoderLayer<S>& layer, const NormWeight<S>& norm, int64_t position,
                                      int count, S* heads) const {
    ptrdiff_t dim = shape_.heads.head_dim;
    if (layer.q_norm && !layer.norms_all_heads)
        rms_norm({heads, dim, count}, norm, shape_.heads.head_dim, {heads, dim, count});
    const Rotation& rotation = layer.rotation;
    if (!rotation.cos) return;
    ptrdiff_t at = position * rotation.rotary_dim;
    RopeAngles angles{rotation.cos + at, rotation.sin + at, rotation.rotary_dim};
    for (int h = 0; h < count; ++h) table_.apply_rope(heads + h * dim, angles);
}

// One KV head of a row: the key and the first `num_queries` queries of its group.
template <typename S>
void DecoderStack<S>::apply_qk_norm_and_rope(const DecoderLayer<S>& layer, int64_t position, int kv_head,
                                             int num_queries, S* qkv) const {
    ptrdiff_t group_size = ptrdiff_t{shape_.heads.group_size()} * shape_.heads.head_dim;
    norm_and_rotate(layer, layer.q_norm, position, num_queries, qkv + kv_head * group_size);
    norm_and_rotate(layer, layer.k_norm, position, 1, shape_.key_of(qkv, kv_head));
}

// One KV head of a row of with_gates_, and the queries of its group.
template <typename S>
void DecoderStack<S>::split_gates(int kv_head, const S* with_gates, S* qkv, S* gates) const {
    const HeadShape& heads = shape_.heads;
    ptrdiff_t dim = heads.head_dim, q_size = shape_.q_size(), kv_size = heads.num_kv_heads * dim, at = kv_head * dim;
    auto copy = [dim](const S* from, S* to) { std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(S)); };
    ptrdiff_t first = kv_head * heads.group_size();
    for (ptrdiff_t head = first; head < first + heads.group_size(); ++head) {
        copy(with_gates + 2 * head * dim, qkv + head * dim);
        copy(with_gates + (2 * head + 1) * dim, gates + head * dim);
    }
    for (ptrdiff_t begin : {at, kv_size + at}) copy(with_gates + 2 * q_size + begin, qkv + q_size + begin);
}

// attention_out_ of all rows, from attention's output, which may be attention_out_.
template <typename S>
void DecoderStack<S>::gate_rows(Team& team, const DecoderLayer<S>& layer, int rows, const S* attention_out,
                                const S* gates) {
    if (layer.gate_of == GateOf::kNothing) return;
    int num_heads = shape_.heads.num_heads, dim = shape_.heads.head_dim, of_head = shape_.num_gates(layer) / num_heads;
    team.parallel_for_ranges(rows * num_heads, [&](int begin, int end) {
        ptrdiff_t at = ptrdiff_t{begin} * dim;
        table_.gate(attention_out + at, gates + ptrdiff_t{begin} * of_head, (end - begin) * of_head, dim / of_head,
                    attention_out_.data() + at);
    });
}

// The value is as far behind the key as all keys of a row are long.
template <typename S>
void DecoderStack<S>::store_kv(const DecoderLayer<S>& layer, int64_t slot, int kv_head, const S* key) const {
    if (slot == kNoSlot) return;
    layout_.store_kv(key, key + shape_.kv_size(), layer.cache, kv_head, slot, shape_.key_limit);
}

template <typename S>
void DecoderStack<S>::store_keys_values(Team& team, S* made, const int64_t* positions, const int64_t* slots,
                                        int rows) const {
    int kv_heads = shape_.heads.num_kv_heads, of_layer = kv_heads * ceil_div(rows, kRowsPerRopeTask);
    ptrdiff_t num_layers = std::ssize(layers_), dim = shape_.heads.head_dim;
    team.parallel_for(static_cast<int>(num_layers) * of_layer, [&](int task) {
        int index = task / of_layer, head = task % kv_heads, begin = task % of_layer / kv_heads * kRowsPerRopeTask;
        const DecoderLayer<S>& layer = layers_[static_cast<size_t>(index)];
        for (int r = begin; r < std::min(rows, begin + kRowsPerRopeTask); ++r) {
            S* key = made + (r * num_layers + index) * 2 * shape_.kv_size() + head * dim;
            norm_and_rotate(layer, layer.k_norm, positions[r], 1, key);
            store_kv(layer, slots[r], head, key);
        }
    });
}

// The keys and values of qkv_ go into the cache. A task is one head of some rows: slots that share a page are written
// by one thread.
template <typename S>
void DecoderStack<S>::store_rows(Team& team, int index, const Batch& in, int num_queries) {
    const DecoderLayer<S>& layer = layers_[static_cast<size_t>(index)];
    int kv_heads = shape_.heads.num_kv_heads;
    ptrdiff_t qkv_size = shape_.qkv_size(), projected_size = shape_.qkv_outputs(layer), gates = shape_.q_size();
    if (!in.last) attention_.prefetch_first(team, *in.plan, layer.cache, layer.rules.window);
    team.parallel_for(kv_heads * ceil_div(in.rows, kRowsPerRopeTask), [&](int task) {
        int head = task % kv_heads, begin = task / kv_heads * kRowsPerRopeTask;
        for (int r = begin; r < std::min(in.rows, begin + kRowsPerRopeTask); ++r) {
            S* qkv = qkv_.data() + r * qkv_size;
            if (layer.gate_of == GateOf::kNumber)
                split_gates(head, with_gates_.data() + r * projected_size, qkv, gates_.data() + r * gates);
            apply_qk_norm_and_rope(layer, in.positions[r], head, num_queries, qkv);
            store_kv(layer, in.slots[r], head, shape_.key_of(qkv, head));
        }
    });
}

// What the thread's linear maps prefetch from now on: keys and values of `layer`, if there is such a layer.
template <typename S>
void DecoderStack<S>::look_ahead(const Team& team, size_t layer) {
    PagesAhead& ahead = ahead_[static_cast<size_t>(team.thread_index())];
    ahead = {};
    if (layer < layers_.size() && layers_[layer].attends())
        ahead = attention_.pages_ahead(team.thread_index(), layers_[layer].cache, layers_[layer].rules.window);
}

// attention_out_ of all rows, or of those of in.last.
template <typename S>
void DecoderStack<S>::mix_rows(Team& team, int index, const Batch& in) {
    const DecoderLayer<S>& layer = layers_[static_cast<size_t>(index)];
    if (layer.conv) return convolve_rows(team, layer.conv, in);
    if (layer.delta) return layer.delta->run(team, in.deltas[index]);
    const AttentionPlan& plan = in.last ? *in.last->plan : *in.plan;
    attention_.run(team, plan, qkv_.data(), shape_.qkv_size(), layer.cache, layer.rules, attention_out_.data());
    gate_rows(team, layer, in.last ? in.last->count : in.rows, attention_out_.data(), gates_.data());
}

// A task has some channels of every row: a row reads what rows before it have written.
template <typename S>
void DecoderStack<S>::convolve_rows(Team& team, const ShortConv<S>& conv, const Batch& in) {
    Rows<const S> rows{qkv_.data(), 3 * ptrdiff_t{conv.size}, in.rows};
    team.parallel_for_ranges(ceil_div(conv.size, kLanes), [&](int begin, int end) {
        ChannelRange channels{begin * kLanes, std::min(end * kLanes, conv.size)};
        table_.short_conv(conv, rows, in.preceding, channels, {attention_out_.data(), conv.size, in.rows});
    });
}

// Of no tokens where a layer has no gated delta net.
template <typename S>
auto DecoderStack<S>::prepare_deltas(std::vector<std::vector<DeltaRun<S>>>& runs) const -> std::vector<DeltaWork> {
    std::vector<DeltaWork> all(layers_.size());
    for (size_t layer = 0; layer < layers_.size(); ++layer)
        if (layers_[layer].delta) all[layer] = layers_[layer].delta->prepare(runs[layer]);
    return all;
}

// For layers with short convolutions.
template <typename S>
PrecedingSlots DecoderStack<S>::find_preceding(const int64_t* slots, const AttentionPlan& plan) {
    plan.find_preceding(reach_, preceding_);
    return {slots, preceding_.data(), reach_};
}

template class DecoderStack<Bf16>;
template class DecoderStack<float>;

}  // namespace specserve
