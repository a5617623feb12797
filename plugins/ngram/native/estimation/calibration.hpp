// Calibration of survival estimates: what became of earlier drafts corrects the product of learned probabilities.
//
// The product takes the tokens of a path for independent, which they are not. The correction is a piecewise linear
// curve over log odds, one per hit rate bucket (adaptive probability maps, Mahoney 2005). A request has its own curves,
// with the global ones as their prior.
#pragma once

#include <array>
#include <cstdint>

#include "estimation/features.hpp"

namespace ngram {

class Calibration {
   public:
    static constexpr uint32_t kKnots = 13;                                 // evenly spaced in log odds
    static constexpr double kMaxLogOdds = 6;                               // of the outermost knots
    static constexpr double kMinSurvival = 0.0025, kMaxSurvival = 0.9975;  // estimates beyond are clamped
    static constexpr double kGlobalDecay = 0.9998, kRequestDecay = 0.998;  // of earlier outcomes, per outcome
    static constexpr double kGlobalPriorTrials = 16, kRequestPriorTrials = 4;

    using Curve = std::array<double, kKnots>;  // survival at the knots, non-decreasing

    // `global`: the calibration that learns from all requests; null for that one itself.
    explicit Calibration(Calibration* global) : global_(global) {}

    // The correction for a bucket of the hit rate.
    Curve curve(uint32_t hit_rate) const;
    // The corrected estimate.
    static double correct(double survival, const Curve& curve);
    // A node with this estimate was on the accepted path, or not. `weight`: 0..1.
    void learn(double survival, uint32_t hit_rate, bool accepted, double weight);

   private:
    struct Knot {
        double hits = 0, trials = 0;
    };

    double value(uint32_t hit_rate, uint32_t knot) const;

    Calibration* global_;
    std::array<std::array<Knot, kKnots>, kHitRateBuckets> knots_{};
};

}  // namespace ngram
