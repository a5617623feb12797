// Calibrated estimates of which draft tokens survive verification, learned from all proposals, verified or not.
//
// A draft token is a trial once its ancestors were right and the token at its depth is known. Its stated probability,
// given that its parent is right, is corrected by the odds that this drafter's tokens with such statements had, and by
// those of its request. Drafters that state nothing are judged by depth.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "estimation/draft.hpp"
#include "estimation/odds.hpp"

namespace adaptive {

class Survival {
   public:
    // P(node and its ancestors are accepted) of every node, never above its parent's. `own` may be null.
    void estimate(const Draft& draft, const RequestOdds* own, std::vector<double>& survival) const;

    // That the token at `depth` is right where all before it are, in drafts of this source. Where nothing was seen so
    // deep, as at the depth before: what was never drafted may be right.
    double at_depth(int source, int depth) const;

    // `tokens`: what the target gave after the draft's root.
    void observe(const Draft& draft, const std::vector<int64_t>& tokens, RequestOdds* own);

   private:
    // Edges of the buckets of stated probabilities: fine where a draft token's fate is nearly certain.
    static constexpr std::array<double, 13> kEdges = {0.02, 0.05, 0.1,  0.2,  0.35, 0.5,  0.65,
                                                      0.8,  0.9,  0.95, 0.98, 0.99, 0.995};
    static constexpr int kDeepest = 16;
    static constexpr double kPriorRate = 0.6;  // without a statement: of a draft token whose parent is right
    static constexpr double kDecay = 0.995;

    struct Rate {
        double hits = 0.0, trials = 0.0;
    };
    struct OfSource {
        std::array<Odds, kEdges.size() + 1> stated;
        std::array<Rate, kDeepest + 1> rates;  // by depth, whatever is stated
        std::array<Odds, kDeepest + 1> by_depth;
    };
    struct Conditional {
        double probability;  // that the node is right where its parent is
        int bucket;
        bool stated;
    };

    static Conditional conditional(const Draft& draft, int32_t node, int depth);
    const Odds* find(const Draft& draft, const Conditional& of) const;

    std::vector<OfSource> sources_;
    mutable std::vector<int> depths_;
};

}  // namespace adaptive
