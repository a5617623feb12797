#include "predictor.hpp"

#include <algorithm>
#include <cmath>

namespace ngram {

namespace {

constexpr double kServerTrials = 4, kOwnTrials = 16;     // what a prior weighs
constexpr double kServerPace = 0.002, kOwnPace = 0.003;  // of the mixing weights
constexpr double kFirstWeight = 0.35;
constexpr double kSurest = 0.9995;

constexpr uint32_t kLengthCells = kKinds * kLengths * kRelations * kStretches;
constexpr uint32_t kRankCells = kKinds * kRanks * kRelations * kDegrees * kCounts;
constexpr uint32_t kOwnCells = kKinds * kLengths * 2;
constexpr uint32_t kSets = kKinds * 2 * 4;

// The three sides: roughly, which a request has rates of its own for; how long the match is and how long the
// alignment has held; how the candidate ranks in its context.
Cells cells_of(const Evidence& e) {
    uint32_t kind = static_cast<uint32_t>(e.kind), relation = static_cast<uint32_t>(e.relation);
    uint32_t stretch = log2_bucket(e.stretch, kStretches);
    uint32_t length = kind * kLengths + length_bucket(e.length);
    uint32_t ranked = (kind * kRanks + std::min(e.rank, kRanks - 1)) * kRelations + relation;
    uint32_t count = e.kind == Kind::kAligned ? std::min(stretch, kCounts - 1) : log2_bucket(e.count, kCounts);
    return {2 * length + (e.rank > 0), kOwnCells + (length * kRelations + relation) * kStretches + stretch,
            kOwnCells + kLengthCells + (ranked * kDegrees + degree_bucket(e.degree)) * kCounts + count};
}

uint32_t weight_set(const Evidence& e) {
    uint32_t length = e.length < 3 ? 0 : e.length < 8 ? 1 : e.length < 24 ? 2 : 3;
    return (static_cast<uint32_t>(e.kind) * 2 + (e.rank > 0)) * 4 + length;
}

// Before anything was seen: the longer the match the surer.
double first_guess(const Evidence& e) {
    double doubt = 1;
    for (uint32_t i = 0; i <= length_bucket(e.length); ++i) doubt *= 0.75;
    double p = (e.kind == Kind::kOwn || e.kind == Kind::kAligned ? 0.9 : 0.7) * (1 - doubt);
    return e.rank == 0 ? p : p / 3;
}

double log_odds(double p) { return std::log(p / (1 - p)); }

double probability(double log_odds) {
    double p = 1 / (1 + std::exp(-log_odds));
    return std::min(kSurest, std::max(1 - kSurest, p));
}

}  // namespace

Predictor::Predictor(Predictor* prior) : prior_(prior) {
    if (prior == nullptr) {
        server_.resize(kOwnCells + kLengthCells + kRankCells);
        weights_.assign(kSets, Weights{kFirstWeight, kFirstWeight, kFirstWeight});
    } else {
        own_.resize(kOwnCells);
        weights_ = prior->weights_;
    }
}

double Predictor::rate(uint32_t cell, const Evidence& evidence) const {
    double p = prior_->server_[cell].value(first_guess(evidence), kServerTrials);
    if (cell < kOwnCells) p = own_[cell].value(p, kOwnTrials);
    return std::min(kSurest, std::max(1 - kSurest, p));
}

double Predictor::estimate(const Evidence& evidence) const {
    Cells cells = cells_of(evidence);
    const Weights& weights = weights_[weight_set(evidence)];
    double sum = 0;
    for (uint32_t i = 0; i < kTables; ++i) sum += weights[i] * log_odds(rate(cells[i], evidence));
    return probability(sum);
}

void Predictor::learn(const Evidence& evidence, bool hit) {
    Cells cells = cells_of(evidence);
    uint32_t set = weight_set(evidence);
    Weights& own = weights_[set];
    Weights& all = prior_->weights_[set];
    double inputs[kTables], own_sum = 0, all_sum = 0;
    for (uint32_t i = 0; i < kTables; ++i) {
        inputs[i] = log_odds(rate(cells[i], evidence));
        own_sum += own[i] * inputs[i];
        all_sum += all[i] * inputs[i];
    }
    double own_step = kOwnPace * (hit - probability(own_sum));
    double all_step = kServerPace * (hit - probability(all_sum));
    for (uint32_t i = 0; i < kTables; ++i) {
        own[i] += own_step * inputs[i];
        all[i] += all_step * inputs[i];
        prior_->server_[cells[i]].add(hit);
    }
    own_[cells[0]].add(hit);
}

}  // namespace ngram
