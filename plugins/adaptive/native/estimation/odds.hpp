// How much likelier draft tokens are right than was stated: observed odds against stated ones.
#pragma once

#include <algorithm>
#include <cmath>

namespace adaptive {

constexpr double kSurest = 0.9995;    // no estimate is nearer to certainty than this, at either end
constexpr double kMostOdds = 50.0;    // nor is any corrected further
constexpr double kPriorTrials = 8.0;  // trials that went as expected: they stand for no knowledge

inline double bounded(double probability) { return std::min(std::max(probability, 1.0 - kSurest), kSurest); }

// Decayed counts of trials: how many were hits, and how many were expected to be.
class Odds {
   public:
    // The correction, which grows with what was seen.
    double ratio() const {
        if (ratio_ <= 0.0) ratio_ = trials_ > 0.0 ? of_trials() : 1.0;
        return ratio_;
    }

    void add(bool hit, double expected, double decay) {
        hits_ = hits_ * decay + (hit ? 1.0 : 0.0);
        expected_ = expected_ * decay + expected;
        trials_ = trials_ * decay + 1.0;
        ratio_ = 0.0;
    }

    void forget() { hits_ = expected_ = trials_ = ratio_ = 0.0; }

   private:
    double of_trials() const {
        double mean = expected_ / trials_;
        double observed = (hits_ + kPriorTrials * mean) / (trials_ - hits_ + kPriorTrials * (1.0 - mean));
        return std::min(std::max(observed * (1.0 - mean) / mean, 1.0 / kMostOdds), kMostOdds);
    }

    double hits_ = 0.0, expected_ = 0.0, trials_ = 0.0;
    mutable double ratio_ = 0.0;  // 0 where it has to be computed
};

inline double corrected(double probability, double ratio) {
    double odds = probability * ratio;
    return odds / (1.0 - probability + odds);
}

// The odds of one request's draft tokens. Its text may change: a run of hits, or of misses, that is unlikely by all
// that is remembered drops the memory, so that what follows counts at once.
class RequestOdds {
   public:
    double ratio() const { return odds_.ratio(); }

    // `expected`: without this request's own correction.
    void add(bool hit, double expected) {
        double own = corrected(expected, ratio());
        double surprise = -std::log(hit ? own : 1.0 - own);
        surprise_ = hit == last_was_hit_ ? surprise_ + surprise : surprise;
        run_ = hit == last_was_hit_ ? run_ + 1 : 1;
        last_was_hit_ = hit;
        if (run_ >= kShortestRun && surprise_ > kSurprising) {
            odds_.forget();
            surprise_ = 0.0;
        }
        odds_.add(hit, expected, kDecay);
    }

   private:
    static constexpr double kDecay = 0.95, kSurprising = 5.3;  // -log of 1 in 200
    static constexpr int kShortestRun = 2;
    Odds odds_;
    double surprise_ = 0.0;
    int run_ = 0;
    bool last_was_hit_ = false;
};

}  // namespace adaptive
