#include "estimation/predictor.hpp"

#include <algorithm>
#include <cmath>

#include "estimation/priors.hpp"

namespace ngram {

namespace {

constexpr int kServerForgetting = 10, kOwnForgetting = 6;
constexpr uint32_t kServerTrials = 8, kOwnTrials = 16;   // what the knowledge that a rate begins with weighs
constexpr double kServerPace = 0.002, kOwnPace = 0.003;  // of the mixing weights
constexpr double kFirstWeight = 0.35;
constexpr double kSurest = 0.9995;

constexpr uint32_t kOwnCells = kKinds * kLengths * 2;
constexpr uint32_t kLengthCells = kKinds * kLengths * kRelations * kStretches;
constexpr uint32_t kRankCells = kKinds * kRanks * kRelations * kDegrees * kCounts;
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

double probability(double log_odds) {
    double p = 1 / (1 + std::exp(-log_odds));
    return std::min(kSurest, std::max(1 - kSurest, p));
}

double mix(const Weights& weights, const Weights& inputs) {
    double sum = 0;
    for (uint32_t i = 0; i < kTables; ++i) sum += weights[i] * inputs[i];
    return sum;
}

}  // namespace

void Rate::begin(double p, uint32_t weight) {
    trials = weight << kPoint;
    hits = static_cast<uint32_t>(p * trials);
    settle();
}

void Rate::add(bool hit, int forgetting) {
    hits = hits - (hits >> forgetting) + (static_cast<uint32_t>(hit) << kPoint);
    trials = trials - (trials >> forgetting) + (1u << kPoint);
    settle();
}

void Rate::settle() {
    double p = std::min(kSurest, std::max(1 - kSurest, value()));
    log_odds = std::log(p / (1 - p));
}

Predictor::Predictor(Predictor* server) : server_(server) {
    if (server != nullptr) {
        rates_.resize(kOwnCells);
        for (uint32_t i = 0; i < kOwnCells; ++i) rates_[i].begin(server->rates_[i].value(), kOwnTrials);
        weights_ = server->weights_;
        return;
    }
    rates_.resize(kOwnCells + kLengthCells + kRankCells);
    weights_.assign(kSets, Weights{kFirstWeight, kFirstWeight, kFirstWeight});
    for (uint32_t i = 0; i < kOwnCells; ++i)
        rates_[i].begin(prior_alone(static_cast<Kind>(i / (2 * kLengths)), i / 2 % kLengths, i % 2 == 0),
                        kServerTrials);
    for (uint32_t i = 0; i < kLengthCells; ++i) {
        uint32_t length = i / (kRelations * kStretches);
        Kind kind = static_cast<Kind>(length / kLengths);
        Relation relation = static_cast<Relation>(i / kStretches % kRelations);
        rates_[kOwnCells + i].begin(prior_by_length(kind, length % kLengths, relation, i % kStretches), kServerTrials);
    }
    for (uint32_t i = 0; i < kRankCells; ++i) {
        uint32_t ranked = i / (kDegrees * kCounts);
        Kind kind = static_cast<Kind>(ranked / (kRanks * kRelations));
        Relation relation = static_cast<Relation>(ranked % kRelations);
        double p = prior_by_rank(kind, ranked / kRelations % kRanks, relation, i / kCounts % kDegrees, i % kCounts);
        rates_[kOwnCells + kLengthCells + i].begin(p, kServerTrials);
    }
}

double Predictor::estimate(const Evidence& evidence) const {
    Cells cells = cells_of(evidence);
    const auto& all = server_->rates_;
    Weights inputs{rates_[cells[0]].log_odds, all[cells[1]].log_odds, all[cells[2]].log_odds};
    return probability(mix(weights_[weight_set(evidence)], inputs));
}

void Predictor::learn(const Evidence& evidence, bool hit) {
    Cells cells = cells_of(evidence);
    auto& all = server_->rates_;
    Weights inputs{rates_[cells[0]].log_odds, all[cells[1]].log_odds, all[cells[2]].log_odds};
    Weights& own_weights = weights_[weight_set(evidence)];
    Weights& all_weights = server_->weights_[weight_set(evidence)];
    double own_step = kOwnPace * (hit - probability(mix(own_weights, inputs)));
    double all_step = kServerPace * (hit - probability(mix(all_weights, inputs)));
    for (uint32_t i = 0; i < kTables; ++i) {
        own_weights[i] += own_step * inputs[i];
        all_weights[i] += all_step * inputs[i];
        all[cells[i]].add(hit, kServerForgetting);
    }
    rates_[cells[0]].add(hit, kOwnForgetting);
}

}  // namespace ngram
