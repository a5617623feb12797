// Chains of draft tokens in one call: a pass over committed tokens, then passes in which each row's best token is the
// input of its next one. The same functions as pass by pass, so the same bits.
#pragma once

#include <vector>

#include "ops/draft_head.hpp"
#include "ops/sampler.hpp"

namespace specserve {

struct DraftChains {
    std::vector<DraftToken> tokens;  // [rows][longest chain]; probability 0 behind the end of a chain
    double further_seconds = 0.0;    // of all passes but the first
    int further_passes = 0;
};

template <typename S>
class DraftChainMaker {
   public:
    DraftChainMaker(DraftHead<S>& head, DecoderStack<S>& stack, Sampler& sampler)
        : head_(head), stack_(stack), sampler_(sampler) {}

    // first: its scored rows are the last ones of as many requests. targets: one of each, without edits. ids: the
    // target's id of each of the `num_logits` columns, null for the same. steps: how long each chain may become, at
    // least 1; each request has room for that many positions more. own: [scored][hidden_size] becomes each row's last
    // own hidden state, null if none are read.
    DraftChains run(const typename DraftHead<S>::Rows& first, TargetRows targets, const int64_t* ids, int num_logits,
                    const std::vector<int>& steps, S* own, int hidden_size);

   private:
    // The chains that go on: their newest rows, as a pass reads them.
    struct Level {
        AttentionPlan plan;
        TargetRows targets;
        std::vector<int> chains;  // of each row
        std::vector<int64_t> ids, positions, slots, rows;
        std::vector<S> hidden, own;

        int num_rows() const { return static_cast<int>(chains.size()); }
    };
    static Level first_level(const typename DraftHead<S>::Rows& first, TargetRows targets);
    static void advance(Level& level, const std::vector<int>& kept, const std::vector<DraftToken>& best);
    const float* run(Level& level, int num_logits, S* own, int hidden_size);

    DraftHead<S>& head_;
    DecoderStack<S>& stack_;
    Sampler& sampler_;
};

}  // namespace specserve
