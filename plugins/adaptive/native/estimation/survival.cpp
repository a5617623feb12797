#include "estimation/survival.hpp"

#include <algorithm>

namespace adaptive {

Survival::Conditional Survival::conditional(const Draft& draft, int32_t node, int depth) {
    if (draft.stated.empty()) return {kPriorRate, std::min(depth, kDeepest), false};
    int32_t parent = draft.parents[node];
    double before = parent == kRoot ? 1.0 : draft.stated[parent];
    double probability = bounded(before > 0.0 ? draft.stated[node] / before : 0.0);
    auto edge = std::upper_bound(kEdges.begin(), kEdges.end(), probability);
    return {probability, static_cast<int>(edge - kEdges.begin()), true};
}

const Odds* Survival::find(const Draft& draft, const Conditional& of) const {
    if (draft.source >= static_cast<int>(sources_.size())) return nullptr;
    const OfSource& source = sources_[draft.source];
    return of.stated ? &source.stated[of.bucket] : &source.by_depth[of.bucket];
}

void Survival::estimate(const Draft& draft, const RequestOdds* own, std::vector<double>& survival) const {
    double of_request = own == nullptr ? 1.0 : own->ratio();
    survival.resize(draft.parents.size());
    depths_.resize(draft.parents.size());
    for (int32_t node = 0; node < draft.size(); ++node) {
        int32_t parent = draft.parents[node];
        depths_[node] = parent == kRoot ? 1 : depths_[parent] + 1;
        Conditional of = conditional(draft, node, depths_[node]);
        const Odds* odds = find(draft, of);
        double ratio = of_request * (odds == nullptr ? 1.0 : odds->ratio());
        survival[node] = corrected(of.probability, ratio) * (parent == kRoot ? 1.0 : survival[parent]);
    }
}

double Survival::at_depth(int source, int depth) const {
    double probability = kPriorRate;
    if (source < 0 || source >= static_cast<int>(sources_.size())) return probability;
    for (int at = 1; at <= std::min(depth, kDeepest); ++at) {
        const Rate& rate = sources_[source].rates[at];
        probability = (rate.hits + kPriorTrials * probability) / (rate.trials + kPriorTrials);
    }
    return probability;
}

void Survival::observe(const Draft& draft, const std::vector<int64_t>& tokens, RequestOdds* own) {
    if (draft.source >= static_cast<int>(sources_.size())) sources_.resize(draft.source + 1);
    depths_.assign(draft.parents.size(), -1);  // of right nodes
    for (int32_t node = 0; node < draft.size(); ++node) {
        int32_t parent = draft.parents[node];
        int depth = parent == kRoot ? 0 : depths_[parent];
        if (depth < 0 || depth >= static_cast<int>(tokens.size())) continue;
        bool hit = draft.tokens[node] == tokens[depth];
        if (hit) depths_[node] = depth + 1;
        Conditional of = conditional(draft, node, depth + 1);
        Odds& odds = of.stated ? sources_[draft.source].stated[of.bucket] : sources_[draft.source].by_depth[of.bucket];
        if (own != nullptr) own->add(hit, corrected(of.probability, odds.ratio()));
        odds.add(hit, of.probability, kDecay);
        Rate& rate = sources_[draft.source].rates[std::min(depth + 1, kDeepest)];
        rate.hits = rate.hits * kDecay + (hit ? 1.0 : 0.0);
        rate.trials = rate.trials * kDecay + 1.0;
    }
}

}  // namespace adaptive
