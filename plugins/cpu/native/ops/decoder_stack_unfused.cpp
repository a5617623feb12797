// Unfused layers: for batches with adapters, and around another attention backend.
#include <algorithm>
#include <cstring>

#include "ops/decoder_stack.hpp"
#include "ops/linear.hpp"
#include "runtime/kernel_job.hpp"

namespace specserve {

// Calls `task(begin, count, adapter_layer)` for runs of a few rows with the same adapter; null for none.
template <typename S>
template <typename Task>
void DecoderStack<S>::for_each_adapter_run(Team& team, int layer, int rows, Task task) {
    int max_rows = std::min(ceil_div(rows, team.size()), kLowRankRows);  // each run reads the adapter's weights once
    team.parallel_for(ceil_div(rows, max_rows), [&](int i) {
        int end = std::min(rows, (i + 1) * max_rows);
        for (int begin = i * max_rows, r = begin + 1; begin < end; begin = r++) {
            const Adapter<S>* adapter = adapters_[static_cast<size_t>(begin)];
            while (r < end && adapters_[static_cast<size_t>(r)] == adapter) ++r;
            bool has_layer = adapter && static_cast<size_t>(layer) < adapter->layers.size();
            task(begin, r - begin, has_layer ? &adapter->layers[static_cast<size_t>(layer)] : nullptr);
        }
    });
}

template <typename S>
void DecoderStack<S>::add_adapter(const AdapterLayer<S>* adapter, LowRank<S> AdapterLayer<S>::* projection,
                                  Rows<const S> x, S* out, int out_features) const {
    if (adapter) add_low_rank(table_, adapter->*projection, x, {out, out_features, x.count});
}

template <typename S>
void DecoderStack<S>::rms_norm(Rows<const S> x, const NormWeight<S>& weight, int size, Rows<S> out) const {
    if (weight.wide)
        table_.rms_norm_wide(x, weight.wide, shape_.eps, size, out);
    else
        table_.rms_norm(x, weight.rounded, shape_.eps, size, out);
}

// The queries of a row as one, and its keys.
template <typename S>
void DecoderStack<S>::norm_all_heads(const DecoderLayer<S>& layer, S* qkv) const {
    int q_size = shape_.q_size(), k_size = shape_.heads.num_kv_heads * shape_.heads.head_dim;
    rms_norm({qkv, q_size, 1}, layer.q_norm, q_size, {qkv, q_size, 1});
    rms_norm({qkv + q_size, k_size, 1}, layer.k_norm, k_size, {qkv + q_size, k_size, 1});
}

// x += branch_, in rows [begin, begin + count), after its norm and its multiplier.
template <typename S>
void DecoderStack<S>::add_branch(const NormWeight<S>& norm, int begin, int count, S* x) {
    int hidden = shape_.hidden_size, size = count * hidden;
    ptrdiff_t at = ptrdiff_t{begin} * hidden;
    S* branch = branch_.data() + at;
    if (norm) rms_norm({branch, hidden, count}, norm, hidden, {branch, hidden, count});
    if (shape_.residual != 1.0f) table_.scale_inplace(branch, shape_.residual, size);
    table_.add_inplace(branch, x + at, size);
}

// The queries, keys, values and gates of a row of qkv's outputs, in their places.
template <typename S>
void DecoderStack<S>::store_row(const DecoderLayer<S>& layer, const Batch& in, int row, const Projected& to) const {
    S* qkv = to.qkv + row * ptrdiff_t{shape_.qkv_size()};
    int kv_heads = shape_.heads.num_kv_heads;
    const S* with_gates = with_gates_.data() + row * ptrdiff_t{shape_.qkv_outputs(layer)};
    for (int h = 0; layer.gate_of == GateOf::kNumber && h < kv_heads; ++h)
        split_gates(h, with_gates, qkv, to.gates + row * ptrdiff_t{shape_.q_size()});
    if (layer.norms_all_heads) norm_all_heads(layer, qkv);
    for (int h = 0; h < kv_heads; ++h) {
        apply_qk_norm_and_rope(layer, in.positions[row], h, shape_.heads.group_size(), qkv);
        if (in.slots) store_kv(layer, in.slots[row], h, shape_.key_of(qkv, h));
    }
}

// What attention reads of in.x. The previous layer has normalized x unless this one is the first of the call. Stores
// keys and values in the cache if in.slots is not null.
template <typename S>
void DecoderStack<S>::project_qkv(Team& team, int index, bool is_first, const Batch& in, const Projected& to) {
    const DecoderLayer<S>& layer = layers_[static_cast<size_t>(index)];
    NormedInput input = attention_input(layer, in.x, in.aux);
    ptrdiff_t hidden = input.width(shape_.hidden_size), width = shape_.qkv_outputs(layer);
    int rows = in.rows, num_gates = shape_.num_gates(layer);
    S *normed = normed_.data(), *qkv = projected(layer, to.qkv);
    bool has_gate = layer.gate_of == GateOf::kHead;
    Rows<const S> normed_rows{normed, hidden, rows};
    if (is_first)
        for_each_adapter_run(team, index, rows, [&](int begin, int count, const AdapterLayer<S>*) {
            normalize(input, begin, count, normed + begin * hidden);
            quantizer_.quantize(table_, layer.qkv, normed_rows, begin, count);
        });
    Inputs<S> inputs = quantizer_.inputs(layer.qkv, normed_rows);
    team.parallel_for_ranges(layer.qkv.num_panels(), [&](int begin, int end) {
        table_.linear(layer.qkv, inputs, {begin, end}, {qkv, width, rows});
    });
    if (has_gate) multiply(team, table_, layer.gate, quantizer_, normed_rows, {to.gates, num_gates, rows});
    for_each_adapter_run(team, index, rows, [&](int begin, int count, const AdapterLayer<S>* adapter) {
        Rows<const S> x{normed + begin * hidden, hidden, count};
        add_adapter(adapter, &AdapterLayer<S>::qkv, x, qkv + begin * width, shape_.qkv_outputs(layer));
        if (has_gate) add_adapter(adapter, &AdapterLayer<S>::gate, x, to.gates + begin * num_gates, num_gates);
        for (int r = begin; r < begin + count && layer.attends(); ++r) store_row(layer, in, r, to);
    });
}

// branch_: what the MLP of a layer without experts adds, but its adapters' part of the last map.
template <typename S>
void DecoderStack<S>::run_dense_mlp(Team& team, int index, int rows) {
    const DecoderLayer<S>& layer = layers_[static_cast<size_t>(index)];
    ptrdiff_t hidden = shape_.hidden_size, inter = shape_.intermediate_size;
    S *normed = normed_.data(), *gate_up = gate_up_.data(), *activated = activated_.data();
    Rows<const S> activated_rows{activated, inter, rows};
    Inputs<S> gate_up_in = quantizer_.inputs(layer.gate_up, {normed, hidden, rows});
    team.parallel_for_ranges(layer.gate_up.num_panels(), [&](int begin, int end) {
        table_.linear(layer.gate_up, gate_up_in, {begin, end}, {gate_up, 2 * inter, rows});
    });
    for_each_adapter_run(team, index, rows, [&](int begin, int count, const AdapterLayer<S>* adapter) {
        S* rows_gate_up = gate_up + begin * 2 * inter;
        add_adapter(adapter, &AdapterLayer<S>::gate_up, {normed + begin * hidden, hidden, count}, rows_gate_up,
                    2 * shape_.intermediate_size);
        shape_.activation(table_, Rows<const S>{rows_gate_up, 2 * inter, count}, shape_.intermediate_size,
                          Rows<S>{activated + begin * inter, inter, count});
        quantizer_.quantize(table_, layer.down, activated_rows, begin, count);
    });
    Inputs<S> down_in = quantizer_.inputs(layer.down, activated_rows);
    team.parallel_for_ranges(layer.down.num_panels(), [&](int begin, int end) {
        table_.linear(layer.down, down_in, {begin, end}, {branch_.data(), hidden, rows});
    });
}

// From attention's output, behind its gates, to the layer's output in in.x; normalizes that for the next layer if there
// is one.
template <typename S>
void DecoderStack<S>::finish_layer(Team& team, int index, const Batch& in, const S* attention_out,
                                   const DecoderLayer<S>* next) {
    const DecoderLayer<S>& layer = layers_[static_cast<size_t>(index)];
    NormedInput mlp_in{in.x, layer.mlp_norm};
    S* x = in.x;
    int rows = in.rows;
    ptrdiff_t hidden = shape_.hidden_size, inter = shape_.intermediate_size, q_size = shape_.mixer_outputs(layer);
    S *normed = normed_.data(), *branch = branch_.data(), *activated = activated_.data();
    Rows<const S> normed_rows{normed, hidden, rows};
    bool is_dense = layer.mixture.experts.empty();
    multiply(team, table_, layer.o, quantizer_, {attention_out, q_size, rows}, {branch, hidden, rows});
    for_each_adapter_run(team, index, rows, [&](int begin, int count, const AdapterLayer<S>* adapter) {
        add_adapter(adapter, &AdapterLayer<S>::o, {attention_out + begin * q_size, q_size, count},
                    branch + begin * hidden, shape_.hidden_size);
        add_branch(layer.attention_output_norm, begin, count, x);
        normalize(mlp_in, begin, count, normed + begin * hidden);
        quantizer_.quantize(table_, layer.gate_up, normed_rows, begin, count);
    });
    if (is_dense)
        run_dense_mlp(team, index, rows);
    else
        experts_.run(team, index, layer.mixture, normed_rows, adapters_.data(), branch);
    for_each_adapter_run(team, index, rows, [&](int begin, int count, const AdapterLayer<S>* adapter) {
        if (is_dense)
            add_adapter(adapter, &AdapterLayer<S>::down, {activated + begin * inter, inter, count},
                        branch + begin * hidden, shape_.hidden_size);
        add_branch(layer.mlp_output_norm, begin, count, x);
        copy_taps(in, index + 1, {begin, count, 0, shape_.hidden_size});
        if (!next) return;
        NormedInput input = attention_input(*next, x, in.aux);
        ptrdiff_t width = input.width(shape_.hidden_size);
        normalize(input, begin, count, normed + begin * width);
        quantizer_.quantize(table_, next->qkv, {normed, width, rows}, begin, count);
    });
}

template <typename S>
void DecoderStack<S>::run_unfused_layer(Team& team, int index, const Batch& in) {
    size_t following = static_cast<size_t>(index) + 1;
    project_qkv(team, index, index == 0, in, {qkv_.data(), gates_.data()});
    mix_rows(team, index, in);
    finish_layer(team, index, in, attention_out_.data(), following < layers_.size() ? &layers_[following] : nullptr);
}

template <typename S>
void DecoderStack<S>::pre_attention(int layer, const S* x, const int64_t* positions, int rows, const Segments& segments,
                                    const S* aux, const Projected& to) {
    prepare(rows, segments);
    Batch in{const_cast<S*>(x), aux, positions, nullptr, nullptr, rows};  // it is only read
    run_kernels(*pool_, table_, 5, [&](Team& team) { project_qkv(team, layer, true, in, to); });
}

template <typename S>
void DecoderStack<S>::post_attention(int layer, S* x, const S* attention_out, const S* gates, int rows,
                                     const Segments& segments) {
    prepare(rows, segments);
    Batch in{x, nullptr, nullptr, nullptr, nullptr, rows};
    const DecoderLayer<S>& weights = layers_[static_cast<size_t>(layer)];
    const S* gated = gates ? attention_out_.data() : attention_out;
    run_kernels(*pool_, table_, 8 + experts_.max_phases(rows), [&](Team& team) {
        gate_rows(team, weights, rows, attention_out, gates);
        finish_layer(team, layer, in, gated, nullptr);
    });
}

template class DecoderStack<Bf16>;
template class DecoderStack<float>;

}  // namespace specserve
