// Mixtures of experts (Shazeer et al., 2017): the experts that each row goes to, and what they give.
//
// Rows are grouped by expert, so that the weights of a chosen expert are read once for all its rows. What an expert
// gives a row depends on no other row; a row's sum has the order of its own choice.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "ops/lowrank.hpp"
#include "runtime/input_quantizer.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

enum class Activation { kSilu, kGelu, kClampedSwiglu };

// What becomes of gates and ups.
struct ActivationRule {
    Activation kind = Activation::kSilu;
    SwigluClamp clamp = {};

    template <typename S>
    void operator()(const KernelTable<S>& table, Rows<const S> gate_up, int size, Rows<S> out) const {
        if (kind == Activation::kClampedSwiglu) return table.clamped_swiglu(gate_up, size, clamp, out);
        (kind == Activation::kGelu ? table.gelu_and_multiply : table.silu_and_multiply)(gate_up, size, out);
    }
};

constexpr int kMaxChosen = 64;

enum class Scores { kSoftmax, kSoftmaxOfChosen, kSigmoid };

// How a router's logits become experts and their weights.
struct Routing {
    int count = 0, chosen = 0;  // experts of a layer, and of a row
    Scores scores = Scores::kSoftmax;
    bool renormalizes = false;  // the weights of the chosen are divided by their sum
    bool rounds = false;        // weights are rounded to the model's dtype; of sigmoids always, and scores and sums too
    // Of sigmoids alone: what is added to the sum of the chosen, and what weights are multiplied by.
    float added_to_sum = 0.0f, weight_scale = 1.0f;
};

struct ExpertShape {
    Routing routing;
    int hidden_size = 0, inner_size = 0;
    ActivationRule activation = {};
};

template <typename S>
struct ExpertMaps {
    Linear<S> gate_up, down;
};

// Without experts, a layer has a plain MLP.
template <typename S>
struct ExpertLayer {
    Linear<S> router;
    std::vector<ExpertMaps<S>> experts;
    const float* choice_bias = nullptr;  // of sigmoids: [routing.count], or null
};

// What experts of a row are chosen by. choice_bias: added to sigmoids for the choice alone; null for none.
template <typename S>
struct RouterRow {
    const S* logits;
    const float* choice_bias;
};

// The experts with the highest logits, or sums of sigmoids and biases, of equal ones the lower, and their weights.
// scratch: 2 * routing.count floats.
template <typename S>
void choose_experts(const KernelTable<S>& table, const Routing& routing, RouterRow<S> row, float* scratch,
                    int32_t* chosen, float* weights);

template <typename S>
class Experts {
   public:
    Experts(const KernelTable<S>& table, const ExpertShape& shape) : table_(table), shape_(shape) {}

    // Not while a job runs: the maps that `run` will be given, and the rows of the next batch.
    void add(const ExpertLayer<S>& layer);
    void reserve(int rows);
    static int max_phases(int rows) { return kPhases * ceil_div(rows, kBlock); }

    // What the experts of layer `index` give for x -> out: [x.count][hidden_size]. adapters: by row, null for none.
    void run(ThreadPool::Team& team, int index, const ExpertLayer<S>& layer, Rows<const S> x,
             const Adapter<S>* const* adapters, S* out);

   private:
    using Team = ThreadPool::Team;
    static constexpr int kPhases = 10, kBlock = 512;  // rows that are grouped together: more need more memory

    // The (row, choice) pairs of one expert: [begin, end) in grouped order.
    struct Group {
        int expert, begin, end;
    };
    struct Block {
        int layer_index;
        const ExpertLayer<S>* layer;
        Rows<const S> x;
        const Adapter<S>* const* adapters;
        bool has_adapters;

        const ExpertMaps<S>& maps(int expert) const { return layer->experts[static_cast<size_t>(expert)]; }
    };

    void run_block(Team& team, const Block& block, S* out);
    void choose(Team& team, const Block& block);
    void group(int rows);
    void gather(const Block& block, int pair);
    void activate(Team& team, const Block& block);
    void add_adapters(Team& team, const Block& block, bool is_down);
    void combine(Team& team, int rows, S* out);
    template <typename Task>
    void for_each_panels(Team& team, int panels, Task task) const;
    template <typename Task>
    void for_each_run(Team& team, const Block& block, Task task) const;
    const AdapterLayer<S>* adapter_of(const Block& block, int pair) const;
    int num_pairs(int rows) const { return rows * shape_.routing.chosen; }

    KernelTable<S> table_;
    ExpertShape shape_;
    InputQuantizer<S> quantizer_;
    std::vector<S> logits_;        // [rows][count]
    std::vector<float> scratch_;   // [rows][2 * count]
    std::vector<int32_t> chosen_;  // [rows][chosen]
    std::vector<float> weights_;   // [rows][chosen]
    std::vector<int32_t> place_;   // [rows][chosen]: where the pair is in grouped order
    // In grouped order, by pair:
    std::vector<int32_t> row_of_, expert_of_;
    std::vector<S> gathered_, gate_up_, activated_, given_;
    std::vector<Group> groups_;
    std::vector<int32_t> next_place_;  // [count]
};

}  // namespace specserve
