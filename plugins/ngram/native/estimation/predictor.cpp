#include "estimation/predictor.hpp"

#include <algorithm>
#include <cmath>

#include "estimation/priors.hpp"

namespace ngram {

namespace {

constexpr uint32_t kOriginCells = kOrigins * kLengthBuckets * 2;
constexpr uint32_t kLengthCells = kOrigins * kLengthBuckets * kRelations * kRunBuckets;
constexpr uint32_t kRankCells = kOrigins * kRankBuckets * kRelations * kDegreeBuckets * kCountBuckets;
constexpr uint32_t kWeightSets = kOrigins * 2 * 4;

// The cell of each table. First: origin, length, whether it is the first candidate. Second: origin, length, relation,
// run. Third: origin, rank, relation, degree, count.
Cells cells_of(const Features& f) {
    uint32_t origin = static_cast<uint32_t>(f.origin), relation = static_cast<uint32_t>(f.relation);
    uint32_t run = log2_bucket(f.run_length, kRunBuckets);
    uint32_t length = origin * kLengthBuckets + length_bucket(f.match_length);
    uint32_t rank = (origin * kRankBuckets + std::min(f.rank, kRankBuckets - 1)) * kRelations + relation;
    uint32_t count =
        f.origin == Origin::kAlignment ? std::min(run, kCountBuckets - 1) : log2_bucket(f.count, kCountBuckets);
    return {2 * length + (f.rank > 0), kOriginCells + (length * kRelations + relation) * kRunBuckets + run,
            kOriginCells + kLengthCells + (rank * kDegreeBuckets + degree_bucket(f.degree)) * kCountBuckets + count};
}

uint32_t weight_set(const Features& f) {
    uint32_t length = f.match_length < 3 ? 0 : f.match_length < 8 ? 1 : f.match_length < 24 ? 2 : 3;
    return (static_cast<uint32_t>(f.origin) * 2 + (f.rank > 0)) * 4 + length;
}

double clamp(double p) { return std::min(Predictor::kMaxProbability, std::max(1 - Predictor::kMaxProbability, p)); }

double probability(double log_odds) { return clamp(1 / (1 + std::exp(-log_odds))); }

double mix(const Weights& weights, const Weights& inputs) {
    double sum = 0;
    for (uint32_t i = 0; i < kTables; ++i) sum += weights[i] * inputs[i];
    return sum;
}

}  // namespace

void Rate::init(double p, uint32_t weight) {
    trials = weight << kPoint;
    hits = static_cast<uint32_t>(p * trials);
    update_log_odds();
}

void Rate::add(bool hit, int decay_shift) {
    hits = hits - (hits >> decay_shift) + (static_cast<uint32_t>(hit) << kPoint);
    trials = trials - (trials >> decay_shift) + (1u << kPoint);
    update_log_odds();
}

void Rate::update_log_odds() {
    double p = clamp(value());
    log_odds = std::log(p / (1 - p));
}

Predictor::Predictor(Predictor* global) : global_(global) {
    if (global == nullptr) {
        init_global();
        return;
    }
    rates_.resize(kOriginCells);
    for (uint32_t i = 0; i < kOriginCells; ++i) rates_[i].init(global->rates_[i].value(), kRequestPriorTrials);
    weights_ = global->weights_;
}

void Predictor::init_global() {
    rates_.resize(kOriginCells + kLengthCells + kRankCells);
    weights_.assign(kWeightSets, Weights{kInitialWeight, kInitialWeight, kInitialWeight});
    for (uint32_t i = 0; i < kOriginCells; ++i) {
        Origin origin = static_cast<Origin>(i / (2 * kLengthBuckets));
        rates_[i].init(prior_by_origin(origin, i / 2 % kLengthBuckets, i % 2 == 0), kGlobalPriorTrials);
    }
    for (uint32_t i = 0; i < kLengthCells; ++i) {
        uint32_t length = i / (kRelations * kRunBuckets);
        Origin origin = static_cast<Origin>(length / kLengthBuckets);
        Relation relation = static_cast<Relation>(i / kRunBuckets % kRelations);
        double p = prior_by_length(origin, length % kLengthBuckets, relation, i % kRunBuckets);
        rates_[kOriginCells + i].init(p, kGlobalPriorTrials);
    }
    for (uint32_t i = 0; i < kRankCells; ++i) {
        uint32_t rank = i / (kDegreeBuckets * kCountBuckets);
        Origin origin = static_cast<Origin>(rank / (kRankBuckets * kRelations));
        Relation relation = static_cast<Relation>(rank % kRelations);
        double p = prior_by_rank(origin, rank / kRelations % kRankBuckets, relation, i / kCountBuckets % kDegreeBuckets,
                                 i % kCountBuckets);
        rates_[kOriginCells + kLengthCells + i].init(p, kGlobalPriorTrials);
    }
}

double Predictor::estimate(const Features& features) const {
    Cells cells = cells_of(features);
    const auto& global = global_->rates_;
    Weights inputs{rates_[cells[0]].log_odds, global[cells[1]].log_odds, global[cells[2]].log_odds};
    return probability(mix(weights_[weight_set(features)], inputs));
}

void Predictor::learn(const Features& features, bool hit) {
    Cells cells = cells_of(features);
    auto& global = global_->rates_;
    Weights inputs{rates_[cells[0]].log_odds, global[cells[1]].log_odds, global[cells[2]].log_odds};
    Weights& weights = weights_[weight_set(features)];
    Weights& global_weights = global_->weights_[weight_set(features)];
    double step = kRequestLearningRate * (hit - probability(mix(weights, inputs)));
    double global_step = kGlobalLearningRate * (hit - probability(mix(global_weights, inputs)));
    for (uint32_t i = 0; i < kTables; ++i) {
        weights[i] += step * inputs[i];
        global_weights[i] += global_step * inputs[i];
        global[cells[i]].add(hit, kGlobalDecayShift);
    }
    rates_[cells[0]].add(hit, kRequestDecayShift);
}

}  // namespace ngram
