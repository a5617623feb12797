#include "estimation/calibration.hpp"

#include <algorithm>
#include <cmath>

namespace ngram {

namespace {

constexpr double kServerMemory = 0.9998, kOwnMemory = 0.998;  // what a node leaves of the weight of those before
constexpr double kServerTrials = 16, kOwnTrials = 4;          // what a prior weighs
constexpr double kReach = 6;                                  // log odds of the outermost knots

struct Between {
    uint32_t knot;  // and the next
    double part;    // how far towards the next
};

Between between(double survival, uint32_t knots) {
    double p = std::min(0.9975, std::max(0.0025, survival));
    double x = (std::log(p / (1 - p)) + kReach) * (knots - 1) / (2 * kReach);
    uint32_t knot = std::min(static_cast<uint32_t>(x), knots - 2);
    return {knot, x - knot};
}

// What survival is at the knots, uncorrected.
Calibration::Curve identity() {
    constexpr uint32_t knots = Calibration::kKnots;
    Calibration::Curve curve;
    for (uint32_t knot = 0; knot < knots; ++knot)
        curve[knot] = 1 / (1 + std::exp(kReach - 2 * kReach * knot / (knots - 1)));
    return curve;
}
const Calibration::Curve kIdentity = identity();

}  // namespace

// Neighbours out of order are pooled (isotonic regression, Ayer et al. 1955), or a guess could be corrected to
// less than the guesses after it.
Calibration::Curve Calibration::curve(uint32_t habit) const {
    struct Pool {
        double mean, weight;
        uint32_t knots;
    };
    std::array<Pool, kKnots> pools;
    uint32_t count = 0;
    for (uint32_t knot = 0; knot < kKnots; ++knot) {
        pools[count++] = {value(habit, knot), knots_[habit][knot].trials + kOwnTrials, 1};
        while (count > 1 && pools[count - 2].mean > pools[count - 1].mean) {
            Pool &left = pools[count - 2], &right = pools[count - 1];
            double weight = left.weight + right.weight;
            left = {(left.mean * left.weight + right.mean * right.weight) / weight, weight, left.knots + right.knots};
            --count;
        }
    }
    Curve curve;
    uint32_t knot = 0;
    for (uint32_t i = 0; i < count; ++i) {
        for (uint32_t k = 0; k < pools[i].knots; ++k) curve[knot++] = pools[i].mean;
    }
    return curve;
}

double Calibration::correct(double survival, const Curve& curve) {
    auto [knot, part] = between(survival, kKnots);
    return (1 - part) * curve[knot] + part * curve[knot + 1];
}

void Calibration::learn(double survival, uint32_t habit, bool came_true, double news) {
    auto [knot, part] = between(survival, kKnots);
    auto add = [came_true](Knot& k, double weight, double memory) {
        double keep = 1 - weight * (1 - memory);
        k.hits = k.hits * keep + weight * came_true;
        k.trials = k.trials * keep + weight;
    };
    add(knots_[habit][knot], news * (1 - part), kOwnMemory);
    add(knots_[habit][knot + 1], news * part, kOwnMemory);
    add(prior_->knots_[habit][knot], news * (1 - part), kServerMemory);
    add(prior_->knots_[habit][knot + 1], news * part, kServerMemory);
}

double Calibration::value(uint32_t habit, uint32_t knot) const {
    const Knot& all = prior_->knots_[habit][knot];
    const Knot& own = knots_[habit][knot];
    double p = (all.hits + kServerTrials * kIdentity[knot]) / (all.trials + kServerTrials);
    return (own.hits + kOwnTrials * p) / (own.trials + kOwnTrials);
}

}  // namespace ngram
