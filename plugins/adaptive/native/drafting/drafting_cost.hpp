// What drafting takes.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace adaptive {

// What was drafted in a step.
struct DraftedStep {
    std::size_t num_requests = 0;
    double depth = 0.0;  // levels of the deepest draft
    double rows = 0.0;   // tokens that these requests got since they were drafted for before: a drafter reads them now
};

// Seconds of each pass of a draft model after the first, by the size class of the requests that take part.
class PassCost {
   public:
    // 0 where none is known.
    double seconds(std::size_t num_requests) const;
    void observe(double seconds, std::size_t num_requests);

   private:
    std::vector<double> by_size_;  // 0 where unknown
};

// Seconds to draft: fixed + more * requests ** 0.75, since they share passes, + of_row * rows, + the passes of further
// levels. The first three are learned as steps run by a Kalman filter: a long time with the same number of requests
// does not spoil what is known of others.
class DraftingCost {
   public:
    double seconds(const DraftedStep& drafted) const;
    // An outlier counts as twice the expectation at most. `pass_seconds`: of each pass after the first, 0 if unknown.
    void observe(double seconds, const DraftedStep& drafted, double pass_seconds);
    double of_level(std::size_t num_requests) const { return passes_.seconds(num_requests); }
    double of_row() const { return parts_[kRows]; }

   private:
    enum { kFixed, kRequests, kRows, kNumParts };
    using Parts = std::array<double, kNumParts>;

    static Parts features(const DraftedStep& drafted);
    double of_parts(const Parts& features) const;
    void begin(double seconds, const Parts& features);
    void drift(double seconds, const Parts& features);

    PassCost passes_;
    Parts parts_{};
    std::array<Parts, kNumParts> uncertainty_{};  // their covariance
    double noise_ = 0.0;                          // variance of a measurement
    bool is_known_ = false;
};

}  // namespace adaptive
