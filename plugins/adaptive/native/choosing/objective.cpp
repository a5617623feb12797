#include "choosing/objective.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

namespace adaptive {

namespace {

// What a draft token adds where only the slowest request counts and that is another one: it breaks ties alone.
constexpr double kOfNoConsequence = 1e-6;

bool larger_gain(const Ranked& a, const Ranked& b) { return a.gain != b.gain ? a.gain > b.gain : a.place < b.place; }

// Of all requests, the largest gains first; a request's own gains fall, so that its order is kept.
void by_gain(std::vector<Ranked>& ranked, std::size_t most) {
    if (most < ranked.size()) {
        std::partial_sort(ranked.begin(), ranked.begin() + most, ranked.end(), larger_gain);
        ranked.resize(most);
    } else {
        std::sort(ranked.begin(), ranked.end(), larger_gain);
    }
}

// The sum of the logarithms of the requests' speeds (proportional fairness; Kelly, 1997).
void rank_fair(const std::vector<std::vector<double>>& survivals, std::size_t most, std::vector<Ranked>& ranked) {
    for (std::size_t i = 0; i < survivals.size(); ++i) {
        double expected = 1.0;
        for (double survival : survivals[i]) {
            ranked.push_back({std::log1p(survival / expected), static_cast<int32_t>(i)});
            expected += survival;
        }
    }
    by_gain(ranked, most);
}

// Tokens per second of all requests together.
void rank_throughput(const std::vector<std::vector<double>>& survivals, std::size_t most, std::vector<Ranked>& ranked) {
    for (std::size_t i = 0; i < survivals.size(); ++i) {
        for (double survival : survivals[i]) ranked.push_back({survival, static_cast<int32_t>(i)});
    }
    by_gain(ranked, most);
    double num_requests = static_cast<double>(survivals.size()), expected = num_requests;
    for (Ranked& each : ranked) {
        double survival = each.gain;
        each.gain = num_requests * std::log1p(survival / expected);
        expected += survival;
    }
}

// The speed of the slowest request: its draft tokens are taken, one at a time, until it has no more. What others could
// gain then counts only where it costs nothing.
void rank_latency(const std::vector<std::vector<double>>& survivals, std::size_t most, std::vector<Ranked>& ranked) {
    using Slowest = std::pair<double, int32_t>;  // expected tokens, place
    std::priority_queue<Slowest, std::vector<Slowest>, std::greater<Slowest>> queue;
    std::vector<std::size_t> taken(survivals.size(), 0);
    for (std::size_t i = 0; i < survivals.size(); ++i) queue.push({1.0, static_cast<int32_t>(i)});
    double num_requests = static_cast<double>(survivals.size());
    while (!queue.empty() && ranked.size() < most) {
        auto [expected, place] = queue.top();
        if (taken[place] == survivals[place].size()) break;
        queue.pop();
        queue.push({expected + survivals[place][taken[place]++], place});
        ranked.push_back({num_requests * std::log(queue.top().first / expected), place});
    }
    std::vector<Ranked> others;
    for (std::size_t i = 0; i < survivals.size(); ++i) {
        for (std::size_t n = taken[i]; n < survivals[i].size(); ++n)
            others.push_back({kOfNoConsequence * survivals[i][n], static_cast<int32_t>(i)});
    }
    by_gain(others, most - ranked.size());
    ranked.insert(ranked.end(), others.begin(), others.end());
}

}  // namespace

void rank(Objective objective, const std::vector<std::vector<double>>& survivals, std::size_t most,
          std::vector<Ranked>& ranked) {
    ranked.clear();
    switch (objective) {
        case Objective::kFair: return rank_fair(survivals, most, ranked);
        case Objective::kThroughput: return rank_throughput(survivals, most, ranked);
        case Objective::kLatency: return rank_latency(survivals, most, ranked);
    }
}

Choice best_prefix(const std::vector<Ranked>& ranked, const double* seconds, std::size_t num_requests) {
    Choice best{0, 0.0};
    double gained = 0.0;
    for (std::size_t n = 1; n <= ranked.size(); ++n) {
        if (seconds[n] > kMostSlowdown * seconds[0]) break;
        gained += ranked[n - 1].gain;
        double value = gained - static_cast<double>(num_requests) * std::log(seconds[n] / seconds[0]);
        if (value > best.value) best = {n, value};
    }
    return best;
}

}  // namespace adaptive
