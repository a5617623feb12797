// Survival as the product of learned probabilities says it, held against what became of earlier drafts.
//
// The product takes the tokens of a path for independent, which they are not. The correction is a curve through
// knots, evenly spread in log odds, one curve per habit; a request has its own and the server's as its prior
// (adaptive probability maps, Mahoney 2005).
#pragma once

#include <array>
#include <cstdint>

#include "evidence.hpp"

namespace ngram {

class Calibration {
  public:
    // `prior`: the server's own; null for that one itself.
    explicit Calibration(Calibration* prior) : prior_(prior) {}

    double correct(double survival, uint32_t habit) const;
    void learn(double survival, uint32_t habit, bool came_true);

  private:
    static constexpr uint32_t kKnots = 13;
    struct Knot {
        double hits = 0, trials = 0;
    };
    using Curve = std::array<Knot, kKnots>;

    double value(uint32_t habit, uint32_t knot) const;

    Calibration* prior_;
    std::array<Curve, kHabits> curves_{};
};

}  // namespace ngram
