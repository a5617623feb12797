// Learned probabilities: how often a candidate with such evidence turned out to be the next token.
//
// Three tables of rates look at the evidence from three sides; their log odds are mixed with weights that are
// learned too (logistic mixing, Mahoney 2005). The server learns from all requests; a request begins with what
// the server knows, and has the weights and the roughest of the tables for itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "estimation/features.hpp"

namespace ngram {

// Hits and trials in fixed point, and what they come to. A trial takes 1 / 2^forgetting off the weight of those
// before it.
struct Rate {
    static constexpr int kPoint = 16;
    uint32_t hits, trials;
    double log_odds;

    void begin(double p, uint32_t weight);
    void add(bool hit, int forgetting);
    void settle();
    double value() const { return static_cast<double>(hits) / trials; }
};

constexpr uint32_t kTables = 3;
using Cells = std::array<uint32_t, kTables>;
using Weights = std::array<double, kTables>;

class Predictor {
   public:
    // `server`: the server's own, which learns with every request; null for that one itself.
    explicit Predictor(Predictor* server);

    // P(the candidate is the next token, given that no candidate before it is), within .0005 of 0 and 1.
    double estimate(const Evidence& evidence) const;
    void learn(const Evidence& evidence, bool hit);
    size_t bytes() const { return rates_.capacity() * sizeof(Rate) + weights_.capacity() * sizeof(Weights); }

   private:
    Predictor* server_;
    std::vector<Rate> rates_;  // the server's: every cell; a request's: the first table's
    std::vector<Weights> weights_;
};

}  // namespace ngram
