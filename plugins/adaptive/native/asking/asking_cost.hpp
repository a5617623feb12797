// What it takes to ask drafters.
#pragma once

#include <array>
#include <cstddef>

namespace adaptive {

// What was asked in a step.
struct Question {
    std::size_t num_requests = 0;
    double depth = 0.0;  // levels of the deepest draft
    double rows = 0.0;   // tokens that these requests got since they were asked before: a drafter reads them now
};

// Seconds to ask: fixed + more * requests ** 0.75, since they share passes, + of_level * depth, since each further
// token of a chain takes a pass, + of_row * rows. Learned as steps run by a Kalman filter whose state are these four: a
// long time at one depth does not spoil what is known of others.
class AskingCost {
   public:
    double seconds(const Question& question) const;
    // An outlier counts as twice the expectation at most.
    void observe(double seconds, const Question& question);
    double of_level() const { return parts_[kDepth]; }
    double of_row() const { return parts_[kRows]; }

   private:
    enum { kFixed, kRequests, kDepth, kRows, kNumParts };
    using Parts = std::array<double, kNumParts>;

    static Parts features(const Question& question);
    void begin(double seconds, const Parts& features);
    void drift();

    Parts parts_{};
    std::array<Parts, kNumParts> uncertainty_{};  // their covariance
    Parts first_uncertainty_{};                   // variances before anything was seen: never exceeded
    double noise_ = 0.0;                          // variance of a measurement
    bool is_known_ = false;
};

}  // namespace adaptive
