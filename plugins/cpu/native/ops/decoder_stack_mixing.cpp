// What a layer mixes rows with: attention over keys and values, and the gates of its output; or a short convolution or
// a gated delta net.
#include <algorithm>
#include <cstring>

#include "ops/decoder_stack.hpp"

namespace specserve {

namespace {
constexpr int kRowsPerRopeTask = 16;
}

// One KV head of a row: the key and the first `num_queries` queries of its group.
template <typename S>
void DecoderStack<S>::apply_qk_norm_and_rope(const DecoderLayer<S>& layer, int64_t position, int kv_head,
                                             int num_queries, S* qkv) const {
    const HeadShape& heads = shape_.heads;
    ptrdiff_t dim = heads.head_dim;
    S* queries = qkv + kv_head * heads.group_size() * dim;
    S* key = qkv + (heads.num_heads + kv_head) * dim;
    if (layer.q_norm && !layer.norms_all_heads) {
        rms_norm({queries, dim, num_queries}, layer.q_norm, heads.head_dim, {queries, dim, num_queries});
        rms_norm({key, dim, 1}, layer.k_norm, heads.head_dim, {key, dim, 1});
    }
    const Rotation& rotation = layer.rotation;
    if (!rotation.cos) return;
    ptrdiff_t at = position * rotation.rotary_dim;
    RopeAngles angles{rotation.cos + at, rotation.sin + at, rotation.rotary_dim};
    for (int h = 0; h < num_queries; ++h) table_.apply_rope(queries + h * dim, angles);
    table_.apply_rope(key, angles);
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

template <typename S>
void DecoderStack<S>::store_kv(const DecoderLayer<S>& layer, int64_t slot, int kv_head, const S* qkv) const {
    if (slot == kNoSlot) return;
    const HeadShape& heads = shape_.heads;
    const S* key = qkv + (heads.num_heads + kv_head) * ptrdiff_t{heads.head_dim};
    layout_.store_kv(key, key + ptrdiff_t{heads.num_kv_heads} * heads.head_dim, layer.cache, kv_head, slot,
                     shape_.key_limit);
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
            store_kv(layer, in.slots[r], head, qkv);
        }
    });
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
