#include "ops/decoder_stack.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "runtime/kernel_job.hpp"

namespace specserve {

namespace {
constexpr int kRedundantRows = 8;  // up to this many rows, each thread normalizes all: cheaper than one more barrier
constexpr int kMaxPhases = 16;     // of a layer
constexpr int kRowsPerNormTask = 2;

template <typename S>
bool is_fusable(const DecoderLayer<S>& layer, const DecoderShape& shape) {
    bool is_plain = shape.activation.kind == Activation::kSilu && shape.residual == 1.0f;
    return is_plain && layer.mixture.experts.empty() && !layer.attention_output_norm && !layer.mlp_output_norm &&
           !layer.norms_all_heads;
}
}  // namespace

template <typename S>
DecoderStack<S>::DecoderStack(const KernelTable<S>& table, KVLayout<S> layout, std::shared_ptr<ThreadPool> pool,
                              DecoderShape shape, std::vector<DecoderLayer<S>> layers, NormWeight<S> final_norm,
                              Linear<S> lm_head)
    : table_(table), layout_(layout), pool_(std::move(pool)), shape_(shape), layers_(std::move(layers)),
      is_fusable_(std::all_of(layers_.begin(), layers_.end(),
                              [&](const DecoderLayer<S>& layer) { return is_fusable(layer, shape); })),
      final_norm_(final_norm), lm_head_(lm_head), attention_(table, layout, shape.heads, shape.scale, shape.min_key),
      experts_(table, shape.experts()), ahead_(static_cast<size_t>(pool_->size())),
      thread_normed_(static_cast<size_t>(pool_->size())) {
    for (std::vector<S>& normed : thread_normed_)
        normed.resize(static_cast<size_t>(kRedundantRows * 2 * shape.hidden_size));
    for (const DecoderLayer<S>& layer : layers_) {
        for (const Linear<S>* w : {&layer.qkv, &layer.gate, &layer.o, &layer.gate_up, &layer.down}) quantizer_.add(*w);
        experts_.add(layer.mixture);
        reach_ = std::max(reach_, layer.conv.reach);
        if (layer.delta) delta_ = layer.delta;
        mixer_inputs_ = std::max(mixer_inputs_, shape_.mixer_inputs(layer));
        mixer_outputs_ = std::max(mixer_outputs_, shape_.mixer_outputs(layer));
        num_gates_ = std::max(num_gates_, shape_.num_gates(layer));
    }
    quantizer_.add(lm_head_);
    thread_quantizers_.assign(thread_normed_.size(), quantizer_);
    for (InputQuantizer<S>& quantizer : thread_quantizers_) quantizer.reserve(kRedundantRows);
}

template <typename S>
void DecoderStack<S>::reserve(int num_rows) {
    size_t rows = static_cast<size_t>(num_rows);
    auto grow = [rows](std::vector<S>& buffer, int size) {
        if (buffer.size() < rows * static_cast<size_t>(size)) buffer.resize(rows * static_cast<size_t>(size));
    };
    grow(normed_, 2 * shape_.hidden_size);
    grow(qkv_, mixer_inputs_);
    grow(attention_out_, mixer_outputs_);
    grow(gates_, num_gates_);
    if (num_gates_ == shape_.q_size()) grow(with_gates_, shape_.qkv_size() + num_gates_);
    grow(activated_, shape_.intermediate_size);
    grow(branch_, shape_.hidden_size);
    grow(gate_up_, 2 * shape_.intermediate_size);
    quantizer_.reserve(num_rows);
    experts_.reserve(num_rows);
}

template <typename S>
void DecoderStack<S>::prepare(int rows, const Segments& segments) {
    reserve(rows);
    adapters_.assign(static_cast<size_t>(rows), nullptr);
    for (const AdapterSegment<S>& segment : segments)
        std::fill(adapters_.begin() + segment.begin, adapters_.begin() + segment.end, segment.adapter);
}

template <typename S>
void DecoderStack<S>::forward(S* x, const int64_t* positions, const int64_t* slots, const AttentionPlan& plan,
                              const Segments& segments, const S* aux, const std::vector<LayerTap<S>>& taps,
                              std::vector<std::vector<DeltaRun<S>>>& runs) {
    std::unique_lock<std::mutex> workspace;
    if (delta_) workspace = std::unique_lock(delta_->workspace().in_use);
    Batch in{x, aux, positions, slots, &plan, plan.num_rows(), nullptr, &taps};
    prepare(in.rows, segments);
    attention_.prepare(plan, pool_->size());
    in.preceding = find_preceding(slots, plan);
    std::vector<DeltaWork> deltas = prepare_deltas(runs);
    in.deltas = deltas.data();
    copy_taps(in, 0, {0, in.rows, 0, shape_.hidden_size});
    int num_layers = static_cast<int>(layers_.size());
    int max_phases = num_layers * (kMaxPhases + experts_.max_phases(in.rows));
    for (const DeltaWork& delta : deltas) max_phases += delta.num_phases;
    bool is_fused = is_fusable_ && segments.empty();
    run_kernels(*pool_, table_, max_phases, [&](Team& team) {
        if (is_fused) {
            attention_.find_pages(team, plan);
            look_ahead(team, 0);
        }
        for (int l = 0; l < num_layers; ++l) is_fused ? run_fused_layer(team, l, in) : run_unfused_layer(team, l, in);
    });
}

// Part of the input of `layer`, copied by the task that completed it.
template <typename S>
void DecoderStack<S>::copy_taps(const Batch& in, int layer, const Part& part) const {
    if (!in.taps) return;
    ptrdiff_t width = shape_.hidden_size;
    for (const LayerTap<S>& tap : *in.taps)
        if (tap.layer == layer)
            for (int r = part.first_row; r < part.first_row + part.num_rows; ++r)
                std::memcpy(tap.out + r * tap.stride + part.begin, in.x + r * width + part.begin,
                            static_cast<size_t>(part.end - part.begin) * sizeof(S));
}

// Rows [begin, begin + count) of a normalized input. A missing norm leaves the rows as they are.
template <typename S>
void DecoderStack<S>::normalize(const NormedInput& in, int begin, int count, S* out) const {
    int hidden = shape_.hidden_size;
    ptrdiff_t width = in.width(hidden);
    auto part = [&](const S* x, const NormWeight<S>& weight, S* to) {
        Rows<const S> from{x + ptrdiff_t{begin} * hidden, hidden, count};
        if (weight) return rms_norm(from, weight, hidden, {to, width, count});
        for (int r = 0; r < count; ++r)
            std::memcpy(to + r * width, from.data + r * from.stride, static_cast<size_t>(hidden) * sizeof(S));
    };
    if (in.aux_weight) part(in.aux, in.aux_weight, out);
    part(in.x, in.weight, in.aux_weight ? out + hidden : out);
}

// Returns a function that gives the tasks of the next phase their inputs, which `prepare(begin, count)` prepares. Few
// rows each thread prepares for itself, at its first task: a late thread without a task must not read x, which others
// may write in a later phase.
template <typename S>
template <typename Prepare>
auto DecoderStack<S>::prepare_lazily(Team& team, int rows, Inputs<S> inputs, Prepare prepare) const {
    bool is_done = rows > kRedundantRows;
    if (is_done)
        team.parallel_for(ceil_div(rows, kRowsPerNormTask), [&](int task) {
            int begin = task * kRowsPerNormTask;
            prepare(begin, std::min(kRowsPerNormTask, rows - begin));
        });
    return [=]() mutable -> const Inputs<S>& {
        if (!is_done) prepare(0, rows);
        is_done = true;
        return inputs;
    };
}

// Shared by the threads, or this thread's own where each prepares all rows.
template <typename S>
InputQuantizer<S>& DecoderStack<S>::quantizer_of(const Team& team, int rows) {
    return rows > kRedundantRows ? quantizer_ : thread_quantizers_[static_cast<size_t>(team.thread_index())];
}

// The normalized rows, as `w` multiplies them.
template <typename S>
auto DecoderStack<S>::lazy_rms_norm(Team& team, NormedInput in, int rows, const Linear<S>& w) {
    ptrdiff_t width = in.width(shape_.hidden_size);
    size_t thread = static_cast<size_t>(team.thread_index());
    S* out = rows > kRedundantRows ? normed_.data() : thread_normed_[thread].data();
    InputQuantizer<S>* quantizer = &quantizer_of(team, rows);
    Rows<const S> normed{out, width, rows};
    return prepare_lazily(team, rows, quantizer->inputs(w, normed), [=, this, &w](int begin, int count) {
        normalize(in, begin, count, out + begin * width);
        quantizer->quantize(table_, w, normed, begin, count);
    });
}

// The rows as `w` multiplies them.
template <typename S>
auto DecoderStack<S>::lazy_quantized(Team& team, Rows<const S> x, const Linear<S>& w) {
    InputQuantizer<S>* quantizer = &quantizer_of(team, x.count);
    int rows = w.prepares_inputs() ? x.count : 0;
    return prepare_lazily(team, rows, quantizer->inputs(w, x),
                          [=, this, &w](int begin, int count) { quantizer->quantize(table_, w, x, begin, count); });
}

// Panels [begin, end) of a phase over `num_panels`. After the last panels of its own range, a thread reads its first
// panels of the next linear map.
template <typename S>
PanelRange DecoderStack<S>::panel_range(const Team& team, int begin, int end, int num_panels, const Linear<S>& next,
                                        int next_panels) {
    bool is_last = end == team.range_end(num_panels);
    PagesAhead& ahead = ahead_[static_cast<size_t>(team.thread_index())];
    return {begin, end, is_last ? next.panel(team.range_begin(next_panels)) : nullptr, &ahead};
}

// qkv_ and gates_ of all rows; keys and values go into the cache. Where no row attends, queries are not computed.
template <typename S>
void DecoderStack<S>::project_and_store(Team& team, int index, const Batch& in) {
    const DecoderLayer<S>& layer = layers_[static_cast<size_t>(index)];
    bool attends = !in.last || in.last->count;
    int first = attends ? 0 : static_cast<int>(shape_.q_size() / kLanes);
    int panels = layer.qkv.num_panels() - first, o_panels = layer.o.num_panels();
    auto inputs = lazy_rms_norm(team, attention_input(layer, in.x, in.aux), in.rows, layer.qkv);
    team.parallel_for_ranges(panels, [&](int begin, int end) {
        PanelRange range = panel_range(team, begin, end, panels, layer.o, o_panels);
        table_.linear(layer.qkv, inputs(), {range.begin + first, range.end + first, range.next},
                      {projected(layer, qkv_.data()), shape_.qkv_outputs(layer), in.rows});
    });
    if (layer.gate_of == GateOf::kHead) project_gates(team, index, in);
    if (layer.attends()) store_rows(team, index, in, attends ? shape_.heads.group_size() : 0);
}

// gates_ of heads.
template <typename S>
void DecoderStack<S>::project_gates(Team& team, int index, const Batch& in) {
    const DecoderLayer<S>& layer = layers_[static_cast<size_t>(index)];
    auto inputs = lazy_rms_norm(team, attention_input(layer, in.x, in.aux), in.rows, layer.gate);
    team.parallel_for_ranges(layer.gate.num_panels(), [&](int begin, int end) {
        table_.linear(layer.gate, inputs(), {begin, end}, {gates_.data(), shape_.heads.num_heads, in.rows});
    });
}

// The rows of in.last become the first rows of x and qkv_. They ascend, so that no row is overwritten before its copy.
template <typename S>
void DecoderStack<S>::keep_rows(Team& team, const Batch& in) {
    ptrdiff_t hidden = shape_.hidden_size, qkv_size = shape_.qkv_size();
    team.parallel_for(2, [&](int task) {
        S* data = task ? in.x : qkv_.data();
        ptrdiff_t width = task ? hidden : qkv_size;
        for (int i = 0; i < in.last->count; ++i)
            std::memmove(data + i * width, data + in.last->rows[i] * width, static_cast<size_t>(width) * sizeof(S));
    });
}

template <typename S>
void DecoderStack<S>::run_fused_layer(Team& team, int index, const Batch& in) {
    const DecoderLayer<S>& layer = layers_[static_cast<size_t>(index)];
    project_and_store(team, index, in);
    if (in.last) keep_rows(team, in);
    int rows = in.last ? in.last->count : in.rows;
    if (rows == 0) return;
    ptrdiff_t hidden = shape_.hidden_size, inter = shape_.intermediate_size;
    size_t following = static_cast<size_t>(index) + 1;
    const Linear<S>& next = following < layers_.size() ? layers_[following].qkv : lm_head_;
    int o_panels = layer.o.num_panels(), gate_panels = layer.gate_up.num_panels() / 2;
    int down_panels = layer.down.num_panels();

    mix_rows(team, index, in);
    look_ahead(team, following);
    auto attention_out = lazy_quantized(team, {attention_out_.data(), shape_.mixer_outputs(layer), rows}, layer.o);
    team.parallel_for_ranges(o_panels, [&](int begin, int end) {
        table_.linear_add(layer.o, attention_out(), panel_range(team, begin, end, o_panels, layer.gate_up, gate_panels),
                          {in.x, hidden, rows});
    });
    auto mlp_in = lazy_rms_norm(team, {in.x, layer.mlp_norm}, rows, layer.gate_up);
    team.parallel_for_ranges(gate_panels, [&](int begin, int end) {
        table_.linear_swiglu(layer.gate_up, mlp_in(),
                             panel_range(team, begin, end, gate_panels, layer.down, down_panels),
                             {activated_.data(), inter, rows});
    });
    auto activated = lazy_quantized(team, {activated_.data(), inter, rows}, layer.down);
    team.parallel_for_ranges(down_panels, [&](int begin, int end) {
        table_.linear_add(layer.down, activated(), panel_range(team, begin, end, down_panels, next, next.num_panels()),
                          {in.x, hidden, rows});
        copy_taps(in, index + 1, {0, rows, ptrdiff_t{begin} * kLanes, std::min(ptrdiff_t{end} * kLanes, hidden)});
    });
}

template <typename S>
void DecoderStack<S>::forward_some(S* x, const int64_t* positions, const int64_t* slots, const AttentionPlan& plan,
                                   int rows, const S* aux, const RowSubset& last) {
    Batch in{x, aux, positions, slots, &plan, rows};
    Batch in_last{x, aux, positions, slots, &plan, rows, &last};
    prepare(rows, {});
    int num_layers = static_cast<int>(layers_.size());
    if (num_layers > 1) {
        attention_.prepare(plan, pool_->size());
        run_kernels(*pool_, table_, (num_layers - 1) * kMaxPhases, [&](Team& team) {
            for (int l = 0; l + 1 < num_layers; ++l) run_fused_layer(team, l, in);
        });
    }
    if (last.count) attention_.prepare(*last.plan, pool_->size());
    run_kernels(*pool_, table_, kMaxPhases, [&](Team& team) { run_fused_layer(team, num_layers - 1, in_last); });
}

template <typename S>
void DecoderStack<S>::logits(const S* x, const int64_t* rows, int count, float* out) {
    size_t width = static_cast<size_t>(shape_.hidden_size);
    if (normed_.size() < static_cast<size_t>(count) * width) normed_.resize(static_cast<size_t>(count) * width);
    for (int i = 0; i < count; ++i)
        normalize({x, final_norm_}, static_cast<int>(rows ? rows[i] : i), 1,
                  normed_.data() + static_cast<size_t>(i) * width);
    Rows<const S> normed{normed_.data(), shape_.hidden_size, count};
    quantizer_.reserve(count);
    quantizer_.quantize(table_, lm_head_, normed, 0, count);
    Inputs<S> inputs = quantizer_.inputs(lm_head_, normed);
    run_kernels(*pool_, table_, 1, [&](Team& team) {
        team.parallel_for_ranges(lm_head_.num_panels(), [&](int begin, int end) {
            table_.linear_logits(lm_head_, inputs, {begin, end}, {out, lm_head_.out_features, count});
        });
    });
}

template class DecoderStack<Bf16>;
template class DecoderStack<float>;

}  // namespace specserve
