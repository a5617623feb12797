#include "estimation/calibration.hpp"

#include <algorithm>
#include <cmath>

namespace ngram {

namespace {

constexpr uint32_t kKnots = Calibration::kKnots;
constexpr double kMaxLogOdds = Calibration::kMaxLogOdds;

struct Position {
    uint32_t knot;  // the last one at or before it
    double part;    // of the way to the next knot
};

Position position_of(double survival) {
    double p = std::min(Calibration::kMaxSurvival, std::max(Calibration::kMinSurvival, survival));
    double x = (std::log(p / (1 - p)) + kMaxLogOdds) * (kKnots - 1) / (2 * kMaxLogOdds);
    uint32_t knot = std::min(static_cast<uint32_t>(x), kKnots - 2);
    return {knot, x - knot};
}

// The curve that corrects nothing.
Calibration::Curve identity() {
    Calibration::Curve curve;
    for (uint32_t knot = 0; knot < kKnots; ++knot) {
        curve[knot] = 1 / (1 + std::exp(kMaxLogOdds - 2 * kMaxLogOdds * knot / (kKnots - 1)));
    }
    return curve;
}
const Calibration::Curve kIdentity = identity();

}  // namespace

// Isotonic regression by pooling adjacent violators (Ayer et al., 1955): a larger estimate is never corrected to less
// than a smaller one.
Calibration::Curve Calibration::curve(uint32_t hit_rate) const {
    struct Pool {
        double mean, weight;
        uint32_t knots;
    };
    std::array<Pool, kKnots> pools;
    uint32_t count = 0;
    for (uint32_t knot = 0; knot < kKnots; ++knot) {
        pools[count++] = {value(hit_rate, knot), knots_[hit_rate][knot].trials + kRequestPriorTrials, 1};
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
    auto [knot, part] = position_of(survival);
    return (1 - part) * curve[knot] + part * curve[knot + 1];
}

void Calibration::learn(double survival, uint32_t hit_rate, bool accepted, double weight) {
    auto [knot, part] = position_of(survival);
    auto add = [accepted](Knot& k, double weight, double decay) {
        double keep = 1 - weight * (1 - decay);
        k.hits = k.hits * keep + weight * accepted;
        k.trials = k.trials * keep + weight;
    };
    add(knots_[hit_rate][knot], weight * (1 - part), kRequestDecay);
    add(knots_[hit_rate][knot + 1], weight * part, kRequestDecay);
    add(global_->knots_[hit_rate][knot], weight * (1 - part), kGlobalDecay);
    add(global_->knots_[hit_rate][knot + 1], weight * part, kGlobalDecay);
}

double Calibration::value(uint32_t hit_rate, uint32_t knot) const {
    const Knot& global = global_->knots_[hit_rate][knot];
    const Knot& own = knots_[hit_rate][knot];
    double p = (global.hits + kGlobalPriorTrials * kIdentity[knot]) / (global.trials + kGlobalPriorTrials);
    return (own.hits + kRequestPriorTrials * p) / (own.trials + kRequestPriorTrials);
}

}  // namespace ngram
