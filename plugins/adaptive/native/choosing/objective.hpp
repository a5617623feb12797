// What a step maximises, as the order in which draft tokens are taken and what each adds.
//
// All gains are in logarithms of requests' speeds, summed over the batch; a longer step costs every request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace adaptive {

enum class Objective { kFair, kThroughput, kLatency };

struct Ranked {
    double gain;
    int32_t place;  // of the request in the batch
};

// survivals[i]: of request i's draft tokens in the drafter's order, never rising; empty without a draft. A request's
// draft tokens are taken in that order, which holds parents before children. At most `most` are ranked.
void rank(Objective objective, const std::vector<std::vector<double>>& survivals, std::size_t most,
          std::vector<Ranked>& ranked);

struct Choice {
    std::size_t count;
    double value;
};

constexpr double kMostSlowdown = 4.0;

// The largest number of draft tokens, up to `most`, with which a step takes no more than kMostSlowdown times a plain
// one, so that no request waits longer for the draft tokens of others, whatever is maximised. seconds[n]: of a step
// with n, never falling.
std::size_t bearable(const double* seconds, std::size_t most);

// The best prefix of at most `most`. seconds[n]: of a step with the first n.
Choice best_prefix(const std::vector<Ranked>& ranked, const double* seconds, std::size_t num_requests,
                   std::size_t most);

}  // namespace adaptive
