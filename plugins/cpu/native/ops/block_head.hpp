// A block head: keys and values of committed tokens straight from the target's hidden states, a pass over each
// request's block, and the chain of its draft tokens. The same functions as piece by piece, so the same bits but for
// the sigmoids of the confidence head, and for a Markov head that reads states.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ops/decoder_stack.hpp"
#include "ops/grow.hpp"
#include "ops/markov_head.hpp"
#include "ops/sampler.hpp"

namespace specserve {

// Empty or null: the head has no such part.
template <typename S>
struct BlockHeadWeights {
    const S* embedding;  // [vocab_size][hidden_size]
    int vocab_size, hidden_size;
    float eps;
    Linear<S> fc;  // of the target's hidden states
    const S* hidden_norm;
    Linear<S> keys_values;  // of each layer the keys, then the values
    const S* final_norm;
    MarkovWeights<S> markov;
    std::optional<Linear<S>> confidence;  // of [state ; entry], or of the state alone
};

template <typename S>
class BlockHead {
   public:
    // Rows of committed tokens. hidden: [rows][fc's inputs].
    struct Committed {
        int count;
        const S* hidden;
        const int64_t *positions, *slots;
    };
    // Rows of blocks, one block for each request. Of each block: its first row, whose token is the request's last one,
    // and the draft tokens that are wanted, at least 1, each of a row of its own from row first + first_proposing on.
    struct Blocks {
        int num_rows;
        const int64_t *ids, *positions, *slots;
        const AttentionPlan* plan;
        std::vector<int> firsts, wanted;
        int first_proposing;
    };

    BlockHead(const KernelTable<S>& table, std::shared_ptr<ThreadPool> pool, BlockHeadWeights<S> weights);

    // Into the cache.
    void write(const DecoderStack<S>& stack, const Committed& rows);

    // [blocks][most wanted]: each chain, and behind its end tokens of probability 0. A token's probability is the
    // confidence head's, or its share of the perturbed scores. targets: one of each block, without edits, numbered from
    // 0; ids: the target's id of each of the `num_logits` columns, null for the same.
    std::vector<DraftToken> draft(DecoderStack<S>& stack, Sampler& sampler, const Blocks& blocks,
                                  const TargetRows& targets, const int64_t* ids, int num_logits);

    // Of the rows that propose, block by block: the stack's logits, without what a Markov head adds, and
    // `states` [rows][hidden_size] behind the final norm, which may be null.
    void rows(DecoderStack<S>& stack, const Blocks& blocks, float* logits, S* states);

   private:
    // The chains that go on.
    struct Level {
        std::vector<size_t> chains;
        TargetRows targets;           // their rows are those of the logits
        std::vector<int64_t> tokens;  // the last one of each chain
    };
    static std::vector<int64_t> proposing(const Blocks& blocks);
    void run_layers(DecoderStack<S>& stack, const Blocks& blocks, const std::vector<int64_t>& rows);
    void normed(int rows, S* out, ptrdiff_t stride);
    void add_markov(const Level& level, int num_logits);
    ptrdiff_t judged_width() const;
    void keep_entries(const Level& level);
    float confidence(size_t row) const;
    void find_confidences(size_t rows);
    ptrdiff_t confidence_inputs() const { return weights_.confidence ? weights_.confidence->in_features : 0; }

    KernelTable<S> table_;
    std::shared_ptr<ThreadPool> pool_;
    BlockHeadWeights<S> weights_;
    std::vector<S> states_, context_, made_;  // of committed rows: fc's outputs, normed, keys and values
    std::vector<S> x_, judged_;         // judged_: of each row of logits_ its state, and what the confidence head reads
    std::vector<float> logits_, sure_;  // sure_: the confidence head's outputs
    MarkovHead<S> markov_;
    InputQuantizer<S> quantizer_;
};

}  // namespace specserve
