// Learned probabilities: how often a candidate with such evidence turned out to be the next token.
//
// Three tables of rates look at the evidence from three sides; their log odds are mixed with weights that are
// learned too (logistic mixing, Mahoney 2005). The server learns from all requests; a request has weights and the
// roughest of the tables for itself, with the server's as prior.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "evidence.hpp"

namespace ngram {

// Hits and trials in fixed point; every trial takes 1 / 2^kForgetting off the weight of those before.
template <typename Word, int kOne, int kForgetting>
struct Rate {
    Word hits = 0, trials = 0;

    void add(bool hit) {
        hits = static_cast<Word>(hits - (hits >> kForgetting) + (static_cast<Word>(hit) << kOne));
        trials = static_cast<Word>(trials - (trials >> kForgetting) + (Word{1} << kOne));
    }
    // With a prior that weighs as much as `weight` trials.
    double value(double prior, double weight) const {
        double one = double(Word{1} << kOne);
        return (hits / one + weight * prior) / (trials / one + weight);
    }
};
using OwnRate = Rate<uint16_t, 8, 6>;
using ServerRate = Rate<uint32_t, 16, 10>;

constexpr uint32_t kTables = 3;
using Cells = std::array<uint32_t, kTables>;
using Weights = std::array<double, kTables>;

class Predictor {
  public:
    // `prior`: the server's own, which learns with every request; null for that one itself.
    explicit Predictor(Predictor* prior);

    // P(the candidate is the next token, given that no candidate before it is), within .0005 of 0 and 1.
    double estimate(const Evidence& evidence) const;
    void learn(const Evidence& evidence, bool hit);
    size_t bytes() const { return own_.capacity() * sizeof(OwnRate) + weights_.capacity() * sizeof(Weights); }

  private:
    double rate(uint32_t cell, const Evidence& evidence) const;

    Predictor* prior_;
    std::vector<ServerRate> server_;  // one per cell, where this is the server's own
    std::vector<OwnRate> own_;        // of the first table's cells, where it is a request's
    std::vector<Weights> weights_;
};

}  // namespace ngram
