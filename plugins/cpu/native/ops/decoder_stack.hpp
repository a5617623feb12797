// The decoder's layers as one job of the thread pool.
//
// A layer runs in one of two ways, with the same bits. Fused: linear maps include what follows them; for batches
// without adapters, with our own attention, where layers are as Llama's, have gates of attention, or a short
// convolution or a gated delta net in its place. Unfused: linear maps alternate with per-row operations, adapters
// included, before and after attention (`pre_attention`, `post_attention`); the attention backend may then be any.
#pragma once

#include <memory>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "ops/attention.hpp"
#include "ops/attention_plan.hpp"
#include "ops/experts.hpp"
#include "ops/gated_delta_net.hpp"
#include "ops/lowrank.hpp"
#include "runtime/input_quantizer.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

// Tables of angles, as float [positions][rotary_dim]; null if nothing is rotated.
struct Rotation {
    const float* cos;
    const float* sin;
    int rotary_dim;
};

// What gates attention's output, by its sigmoid: nothing, a number for each head, from a linear map of qkv's inputs, or
// one for each number of a head, which qkv gives behind the head's query.
enum class GateOf { kNothing, kHead, kNumber };

// Norms that a layer does not have are null.
template <typename S>
struct DecoderLayer {
    NormWeight<S> input_norm;
    NormWeight<S> aux_norm;  // not null: qkv reads [normed auxiliary input ; normed x]
    Linear<S> qkv;
    NormWeight<S> q_norm, k_norm;
    bool norms_all_heads;  // as one row, instead of each
    GateOf gate_of;
    Linear<S> gate;  // of heads alone
    Linear<S> o;
    NormWeight<S> attention_output_norm;
    NormWeight<S> mlp_norm;
    Linear<S> gate_up;  // not of layers with experts
    Linear<S> down;
    ExpertLayer<S> mixture;
    NormWeight<S> mlp_output_norm;
    Rotation rotation;
    KVCacheLayer cache;  // null pointers if another attention backend owns the cache
    ScoreRules rules;
    // In place of attention, or null: qkv is its input map then, and o its output map.
    ShortConv<S> conv;
    const GatedDeltaNet<S>* delta;

    bool attends() const { return !conv && !delta; }
};

struct DecoderShape {
    int hidden_size, intermediate_size;
    HeadShape heads;
    float eps, scale, key_limit;
    int min_key;  // see Attention
    ActivationRule activation = {};
    float residual = 1.0f;  // of what attention and the MLP add
    Routing routing;        // of layers with experts
    int expert_size = 0;    // the intermediate size of one

    ExpertShape experts() const { return {routing, hidden_size, expert_size, activation}; }

    int q_size() const { return heads.num_heads * heads.head_dim; }
    int kv_size() const { return heads.num_kv_heads * heads.head_dim; }
    int qkv_size() const { return q_size() + 2 * kv_size(); }
    // In a row of [queries, keys, values].
    template <typename S>
    S* key_of(S* qkv, int kv_head) const {
        return qkv + q_size() + kv_head * ptrdiff_t{heads.head_dim};
    }

    template <typename S>
    int num_gates(const DecoderLayer<S>& layer) const {
        if (layer.gate_of == GateOf::kNothing) return 0;
        return layer.gate_of == GateOf::kHead ? heads.num_heads : q_size();
    }
    // Outputs of the layer's qkv; those of them that attention reads, or what stands in its place; and inputs of its o.
    template <typename S>
    int qkv_outputs(const DecoderLayer<S>& layer) const {
        return mixer_inputs(layer) + (layer.gate_of == GateOf::kNumber ? q_size() : 0);
    }
    template <typename S>
    int mixer_inputs(const DecoderLayer<S>& layer) const {
        if (layer.delta) return layer.delta->shape().row_size();
        return layer.conv ? 3 * layer.conv.size : qkv_size();
    }
    template <typename S>
    int mixer_outputs(const DecoderLayer<S>& layer) const {
        if (layer.delta) return layer.delta->shape().out_features();
        return layer.conv ? layer.conv.size : q_size();
    }
};

// Where to copy the input of a layer, or the output of the last: [rows][hidden_size], rows `stride` apart.
template <typename S>
struct LayerTap {
    int layer;
    S* out;
    ptrdiff_t stride;
};

// Some rows of a batch, ascending, and the attention plan of these alone.
struct RowSubset {
    const int64_t* rows;
    int count;
    const AttentionPlan* plan;
};

template <typename S>
class DecoderStack {
   public:
    using Segments = std::vector<AdapterSegment<S>>;

    DecoderStack(const KernelTable<S>& table, KVLayout<S> layout, std::shared_ptr<ThreadPool> pool, DecoderShape shape,
                 std::vector<DecoderLayer<S>> layers, NormWeight<S> final_norm, Linear<S> lm_head);

    // All layers. x: [rows][hidden_size], updated in place. aux: [rows][hidden_size], read by layers that have an
    // auxiliary norm. runs: by layer, of gated delta nets alone, over `mixer_rows` and `mixed_rows`.
    void forward(S* x, const int64_t* positions, const int64_t* slots, const AttentionPlan& plan,
                 const Segments& segments, const S* aux, const std::vector<LayerTap<S>>& taps,
                 std::vector<std::vector<DeltaRun<S>>>& runs);

    // The same without adapters and taps, where the last output is wanted of some rows only, and of the others their
    // keys and values: it becomes the first rows of x. `plan` is not read if there is one layer. Of layers as Llama's.
    void forward_some(S* x, const int64_t* positions, const int64_t* slots, const AttentionPlan& plan, int rows,
                      const S* aux, const RowSubset& last);

    // Keys and values of all layers, of rows that pass through none. One phase of a job. made: [rows][layers][keys,
    // values]; the keys become normed and rotated.
    void store_keys_values(ThreadPool::Team& team, S* made, const int64_t* positions, const int64_t* slots,
                           int rows) const;

    // Where the next batch has the rows that a layer's mixer reads, and those that it gives, after `reserve`.
    void reserve(int rows);
    Rows<const S> mixer_rows(int layer, int rows) const { return {qkv_.data(), mixer_inputs(layer), rows}; }
    S* mixed_rows() { return attention_out_.data(); }

    // What attention reads of a layer's input, and the gates of its output.
    struct Projected {
        S* qkv;    // [rows][queries, keys, values], with RoPE applied; of layers without attention, what they read
        S* gates;  // [rows][num_gates]
    };
    // The parts of a layer around another attention backend.
    void pre_attention(int layer, const S* x, const int64_t* positions, int rows, const Segments& segments,
                       const S* aux, const Projected& to);
    void post_attention(int layer, S* x, const S* attention_out, const S* gates, int rows, const Segments& segments);

    // logits[i] is of row rows[i], or of row i if `rows` is null.
    void logits(const S* x, const int64_t* rows, int count, float* out);

    int qkv_outputs(int layer) const { return shape_.qkv_outputs(layers_[static_cast<size_t>(layer)]); }
    int mixer_inputs(int layer) const { return shape_.mixer_inputs(layers_[static_cast<size_t>(layer)]); }
    int mixer_outputs(int layer) const { return shape_.mixer_outputs(layers_[static_cast<size_t>(layer)]); }
    int num_gates(int layer) const { return shape_.num_gates(layers_[static_cast<size_t>(layer)]); }

   private:
    using Team = ThreadPool::Team;
    using DeltaWork = typename GatedDeltaNet<S>::Work;
    struct Batch {
        S* x;
        const S* aux;
        const int64_t* positions;
        const int64_t* slots;
        const AttentionPlan* plan;
        int rows;
        const RowSubset* last = nullptr;  // of the last layer; null for all rows
        const std::vector<LayerTap<S>>* taps = nullptr;
        PrecedingSlots preceding = {};      // of layers with short convolutions
        const DeltaWork* deltas = nullptr;  // by layer, of gated delta nets
    };
    void prepare(int rows, const Segments& segments);
    // Rows and columns of a layer's input.
    struct Part {
        int first_row, num_rows;
        ptrdiff_t begin, end;
    };
    void copy_taps(const Batch& in, int layer, const Part& part) const;
    void run_fused_layer(Team& team, int layer, const Batch& in);
    void project_and_store(Team& team, int layer, const Batch& in);
    void project_gates(Team& team, int layer, const Batch& in);
    void store_rows(Team& team, int layer, const Batch& in, int num_queries);
    void gate_rows(Team& team, const DecoderLayer<S>& layer, int rows, const S* attention_out, const S* gates);
    void mix_rows(Team& team, int layer, const Batch& in);
    void convolve_rows(Team& team, const ShortConv<S>& conv, const Batch& in);
    std::vector<DeltaWork> prepare_deltas(std::vector<std::vector<DeltaRun<S>>>& runs) const;
    PrecedingSlots find_preceding(const int64_t* slots, const AttentionPlan& plan);
    void keep_rows(Team& team, const Batch& in);
    void run_unfused_layer(Team& team, int layer, const Batch& in);
    PanelRange panel_range(const Team& team, int begin, int end, int num_panels, const Linear<S>& next,
                           int next_panels);
    void look_ahead(const Team& team, size_t layer);
    // The normalized input of a linear map: rows of `width` numbers.
    struct NormedInput {
        const S* x;
        NormWeight<S> weight;
        const S* aux = nullptr;  // null if there is no auxiliary input
        NormWeight<S> aux_weight = {};

        int width(int hidden) const { return aux_weight ? 2 * hidden : hidden; }
    };
    static NormedInput attention_input(const DecoderLayer<S>& layer, const S* x, const S* aux) {
        return {x, layer.input_norm, aux, layer.aux_norm};
    }
    void rms_norm(Rows<const S> x, const NormWeight<S>& weight, int size, Rows<S> out) const;
    void normalize(const NormedInput& in, int begin, int count, S* out) const;
    template <typename Prepare>
    auto prepare_lazily(Team& team, int rows, Inputs<S> inputs, Prepare prepare) const;
    InputQuantizer<S>& quantizer_of(const Team& team, int rows);
    auto lazy_rms_norm(Team& team, NormedInput in, int rows, const Linear<S>& w);
    auto lazy_quantized(Team& team, Rows<const S> x, const Linear<S>& w);
    // Where qkv's outputs go: those of attention with gates of numbers have another order.
    S* projected(const DecoderLayer<S>& layer, S* qkv) {
        return layer.gate_of == GateOf::kNumber ? with_gates_.data() : qkv;
    }
    void split_gates(int kv_head, const S* with_gates, S* qkv, S* gates) const;
    void norm_and_rotate(const DecoderLayer<S>& layer, const NormWeight<S>& norm, int64_t position, int count,
                         S* heads) const;
    void apply_qk_norm_and_rope(const DecoderLayer<S>& layer, int64_t position, int kv_head, int num_queries,
                                S* qkv) const;
    void store_kv(const DecoderLayer<S>& layer, int64_t slot, int kv_head, const S* key) const;

    // Unfused:
    void project_qkv(Team& team, int layer, bool is_first, const Batch& in, const Projected& to);
    void store_row(const DecoderLayer<S>& layer, const Batch& in, int row, const Projected& to) const;
    void finish_layer(Team& team, int layer, const Batch& in, const S* attention_out, const DecoderLayer<S>* next);
    void norm_all_heads(const DecoderLayer<S>& layer, S* qkv) const;
    void run_dense_mlp(Team& team, int layer, int rows);
    void add_branch(const NormWeight<S>& norm, int begin, int count, S* x);
    template <typename Task>
    void for_each_adapter_run(Team& team, int layer, int rows, Task task);
    void add_adapter(const AdapterLayer<S>* adapter, LowRank<S> AdapterLayer<S>::* projection, Rows<const S> x, S* out,
                     int out_features) const;

    KernelTable<S> table_;
    KVLayout<S> layout_;
    std::shared_ptr<ThreadPool> pool_;
    DecoderShape shape_;
    std::vector<DecoderLayer<S>> layers_;
    bool is_fusable_;  // all layers
    NormWeight<S> final_norm_;
    Linear<S> lm_head_;
    Attention<S> attention_;
    Experts<S> experts_;
    const GatedDeltaNet<S>* delta_ = nullptr;                               // of any layer: all have one workspace
    int reach_ = 0, mixer_inputs_ = 0, mixer_outputs_ = 0, num_gates_ = 0;  // the most of any layer
    std::vector<int64_t> preceding_;
    std::vector<S> normed_, qkv_, attention_out_, activated_;
    std::vector<S> with_gates_, gates_;          // with_gates_: of each head its query, then its gates; keys and values
    std::vector<S> branch_, gate_up_;            // of unfused layers; branch_: what is added to the residual stream
    std::vector<PagesAhead> ahead_;              // by thread: of the next layer with attention
    std::vector<std::vector<S>> thread_normed_;  // by thread: the normalized rows of a small batch
    std::vector<const Adapter<S>*> adapters_;    // by row; null for none
    InputQuantizer<S> quantizer_;
    std::vector<InputQuantizer<S>> thread_quantizers_;  // by thread: of a small batch
};

}  // namespace specserve
