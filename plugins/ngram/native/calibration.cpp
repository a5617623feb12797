#include "calibration.hpp"

#include <algorithm>
#include <cmath>

namespace ngram {

namespace {

constexpr double kServerMemory = 0.9998, kOwnMemory = 0.998;  // what a node leaves of the weight of those before
constexpr double kServerTrials = 16, kOwnTrials = 16;         // what a prior weighs
constexpr double kReach = 6;  // log odds of the outermost knots

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

double identity(uint32_t knot, uint32_t knots) { return 1 / (1 + std::exp(kReach - 2 * kReach * knot / (knots - 1))); }

}  // namespace

double Calibration::correct(double survival, uint32_t habit) const {
    auto [knot, part] = between(survival, kKnots);
    return (1 - part) * value(habit, knot) + part * value(habit, knot + 1);
}

void Calibration::learn(double survival, uint32_t habit, bool came_true) {
    auto [knot, part] = between(survival, kKnots);
    auto add = [came_true](Knot& k, double weight, double memory) {
        double keep = 1 - weight * (1 - memory);
        k.hits = k.hits * keep + weight * came_true;
        k.trials = k.trials * keep + weight;
    };
    add(curves_[habit][knot], 1 - part, kOwnMemory);
    add(curves_[habit][knot + 1], part, kOwnMemory);
    add(prior_->curves_[habit][knot], 1 - part, kServerMemory);
    add(prior_->curves_[habit][knot + 1], part, kServerMemory);
}

double Calibration::value(uint32_t habit, uint32_t knot) const {
    const Knot& all = prior_->curves_[habit][knot];
    const Knot& own = curves_[habit][knot];
    double p = (all.hits + kServerTrials * identity(knot, kKnots)) / (all.trials + kServerTrials);
    return (own.hits + kOwnTrials * p) / (own.trials + kOwnTrials);
}

}  // namespace ngram
