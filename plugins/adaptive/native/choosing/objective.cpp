#include "choosing/objective.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

namespace adaptive {

namespace {

// What a draft token adds where only the slowest request counts and that is another one: it breaks ties alone.
constexpr double kOfNoConsequence = 1e-6;

// The request's next draft token in the order.
struct Next {
    double key;
    int32_t place;

    bool operator<(const Next& other) const { return key != other.key ? key < other.key : place > other.place; }
};

void replace_top(std::vector<Next>& heap, const Next& next) {
    std::size_t at = 0, child = 1;
    for (; child < heap.size(); child = 2 * at + 1) {
        if (child + 1 < heap.size() && heap[child] < heap[child + 1]) ++child;
        if (!(next < heap[child])) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = next;
}

// Draft tokens of all requests by falling key, at most `most`: a merge, since a request's own keys fall. key(i, n): of
// request i's n-th; called for each but once, in order.
template <typename Key>
void merge(const std::vector<std::vector<double>>& survivals, std::size_t most, Key key, std::vector<Ranked>& ranked) {
    std::vector<Next> heap;
    std::vector<std::size_t> taken(survivals.size(), 0);
    for (std::size_t i = 0; i < survivals.size(); ++i) {
        if (!survivals[i].empty()) heap.push_back({key(i, 0), static_cast<int32_t>(i)});
    }
    std::make_heap(heap.begin(), heap.end());
    while (!heap.empty() && ranked.size() < most) {
        Next next = heap.front();
        ranked.push_back({next.key, next.place});
        std::size_t place = static_cast<std::size_t>(next.place), n = ++taken[place];
        if (n < survivals[place].size()) {
            replace_top(heap, {key(place, n), next.place});
        } else {
            std::pop_heap(heap.begin(), heap.end());
            heap.pop_back();
        }
    }
}

// The sum of the logarithms of the requests' speeds (proportional fairness; Kelly, 1997).
void rank_fair(const std::vector<std::vector<double>>& survivals, std::size_t most, std::vector<Ranked>& ranked) {
    std::vector<double> expected(survivals.size(), 1.0);
    auto gain = [&](std::size_t i, std::size_t n) {
        double survival = survivals[i][n], gained = std::log1p(survival / expected[i]);
        expected[i] += survival;
        return gained;
    };
    merge(survivals, most, gain, ranked);
}

// Tokens per second of all requests together.
void rank_throughput(const std::vector<std::vector<double>>& survivals, std::size_t most, std::vector<Ranked>& ranked) {
    merge(survivals, most, [&](std::size_t i, std::size_t n) { return survivals[i][n]; }, ranked);
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
    std::vector<std::vector<double>> others(survivals.size());
    for (std::size_t i = 0; i < survivals.size(); ++i)
        others[i].assign(survivals[i].begin() + static_cast<std::ptrdiff_t>(taken[i]), survivals[i].end());
    merge(others, most, [&](std::size_t i, std::size_t n) { return kOfNoConsequence * others[i][n]; }, ranked);
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

std::size_t bearable(const double* seconds, std::size_t most) {
    const double* end = std::upper_bound(seconds, seconds + most + 1, kMostSlowdown * seconds[0]);
    return static_cast<std::size_t>(end - seconds) - 1;
}

Choice best_prefix(const std::vector<Ranked>& ranked, const double* seconds, std::size_t num_requests,
                   std::size_t most) {
    Choice best{0, 0.0};
    double gained = 0.0;
    for (std::size_t n = 1; n <= std::min(most, ranked.size()); ++n) {
        gained += ranked[n - 1].gain;
        double value = gained - static_cast<double>(num_requests) * std::log(seconds[n] / seconds[0]);
        if (value > best.value) best = {n, value};
    }
    return best;
}

}  // namespace adaptive
