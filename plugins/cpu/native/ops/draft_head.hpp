// A pass of a draft model: embedding and hidden state become the layers' input, then layers, own hidden states and
// logits. The same functions as in the pass piece by piece, so the same bits.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "ops/decoder_stack.hpp"
#include "ops/grow.hpp"
#include "runtime/input_quantizer.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

// Null or empty: the architecture has no such part.
template <typename S>
struct DraftHeadWeights {
    const S* embedding;  // [vocab_size][hidden_size]
    int vocab_size, hidden_size;
    float eps;
    bool reads_hidden;
    std::optional<Linear<S>> target_fc;  // of the target's hidden states
    const S* target_norm;
    int target_size;  // numbers of the target's hidden state
    float target_eps;
    std::optional<Linear<S>>
        fc;  // over embedding and hidden state; without it, layers read the embedding as the auxiliary input
    bool embedding_first;
    const S *enorm, *hnorm;
    const S* own_norm;  // of the own hidden states that the next pass reads
};

template <typename S>
class DraftHead {
   public:
    // The rows of a pass; plans: of all rows, which is not read if there is one layer, and of the scored ones. hidden:
    // [rows][target_size] from the target, else [rows][hidden_size]; null if none are read.
    struct Rows {
        int count;
        const int64_t *ids, *positions, *slots;
        const S* hidden;
        bool from_target;
        const AttentionPlan* plan;
        RowSubset scored;
    };

    DraftHead(const KernelTable<S>& table, std::shared_ptr<ThreadPool> pool, DraftHeadWeights<S> weights)
        : table_(table), pool_(std::move(pool)), weights_(weights) {
        for (const std::optional<Linear<S>>* w : {&weights_.target_fc, &weights_.fc})
            if (*w) quantizer_.add(**w);
    }

    // Logits of the scored rows, valid until the next call: [scored][D]. own: [scored][hidden_size], or null.
    const float* run(DecoderStack<S>& stack, int num_logits, const Rows& rows, S* own);

   private:
    void enter(const Rows& rows);
    const S* states(const Rows& rows);
    void normalize(const S* x, const S* weight, float eps, int size, int count, S* out, ptrdiff_t out_stride) const;
    void linear(const Linear<S>& w, const S* x, int count, S* out);

    KernelTable<S> table_;
    std::shared_ptr<ThreadPool> pool_;
    DraftHeadWeights<S> weights_;
    std::vector<S> x_, aux_, states_, joined_;
    std::vector<float> logits_;
    InputQuantizer<S> quantizer_;
};

}  // namespace specserve
