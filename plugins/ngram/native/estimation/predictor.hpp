// The estimated probability of a candidate: how often candidates with such features were the next token.
//
// Three tables of hit rates are indexed by different features. Their log odds are mixed with learned weights (logistic
// mixing, Mahoney 2005). A global predictor learns from all requests; a request starts from a copy of it and has its
// own weights and its own first table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "estimation/features.hpp"

namespace ngram {

// An adaptive hit rate: hits and trials in fixed point, with exponential decay. A trial multiplies the weight of
// earlier ones by 1 - 2^-decay_shift.
struct Rate {
    static constexpr int kPoint = 16;  // fraction bits
    uint32_t hits, trials;
    double log_odds;

    // `p`, weighing as much as `weight` trials.
    void init(double p, uint32_t weight);
    void add(bool hit, int decay_shift);
    void update_log_odds();
    double value() const { return static_cast<double>(hits) / trials; }
};

constexpr uint32_t kTables = 3;
using Cells = std::array<uint32_t, kTables>;
using Weights = std::array<double, kTables>;

class Predictor {
   public:
    static constexpr int kGlobalDecayShift = 10, kRequestDecayShift = 6;
    static constexpr uint32_t kGlobalPriorTrials = 8, kRequestPriorTrials = 16;  // weight of what a rate starts from
    static constexpr double kGlobalLearningRate = 0.002, kRequestLearningRate = 0.003;  // of the mixing weights
    static constexpr double kInitialWeight = 0.35;
    static constexpr double kMaxProbability = 0.9995;

    // `global`: the predictor that learns from all requests; null for that one itself.
    explicit Predictor(Predictor* global);

    // P(the candidate is the next token, given that no candidate before it is), from 1 - kMaxProbability to
    // kMaxProbability.
    double estimate(const Features& features) const;
    // `hit`: the candidate was the next token; no candidate before it was.
    void learn(const Features& features, bool hit);
    size_t bytes() const { return rates_.capacity() * sizeof(Rate) + weights_.capacity() * sizeof(Weights); }

   private:
    void init_global();

    Predictor* global_;
    std::vector<Rate> rates_;  // global: all three tables; a request's: the first table
    std::vector<Weights> weights_;
};

}  // namespace ngram
