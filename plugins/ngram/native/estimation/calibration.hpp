// Survival as the product of learned probabilities says it, held against what became of earlier drafts.
//
// The product takes the tokens of a path for independent, which they are not. The correction is a curve through
// knots, evenly spread in log odds, one curve per habit; a request has its own and the server's as its prior
// (adaptive probability maps, Mahoney 2005).
#pragma once

#include <array>
#include <cstdint>

#include "estimation/features.hpp"

namespace ngram {

class Calibration {
   public:
    // `prior`: the server's own; null for that one itself.
    explicit Calibration(Calibration* prior) : prior_(prior) {}

    static constexpr uint32_t kKnots = 13;
    using Curve = std::array<double, kKnots>;  // survival at the knots, never falling

    Curve curve(uint32_t habit) const;
    static double correct(double survival, const Curve& curve);
    // `news`: how much of the outcome did not follow from that of the guess before it, 0..1.
    void learn(double survival, uint32_t habit, bool came_true, double news);

   private:
    struct Knot {
        double hits = 0, trials = 0;
    };

    double value(uint32_t habit, uint32_t knot) const;

    Calibration* prior_;
    std::array<std::array<Knot, kKnots>, kHabits> knots_{};
};

}  // namespace ngram
