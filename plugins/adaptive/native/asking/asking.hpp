// For which requests the drafters are asked: where draft tokens save more than asking and verifying take.
//
// Asking takes time even where nothing is verified: a part that all asked requests share, as the passes of a draft
// model, and a part for each. Requests are asked as long as their draft tokens together save more than that; the others
// only at an interval, all in the same steps, so that text which begins to repeat is noticed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace adaptive {

// Seconds.
struct Prices {
    double accepted = 0.0;  // that an accepted draft token saves: its share of a plain step
    double verified = 0.0;  // that a verified draft token takes
    double plain_step = 0.0;

    double saved(double num_accepted, double num_verified) const {
        return num_accepted * accepted - num_verified * verified;
    }
};

// Of the drafts that were asked for, decayed.
struct Sums {
    double drafts = 0.0, accepted = 0.0, verified = 0.0;

    void add_draft(double decay) {
        drafts = decay * drafts + 1.0;
        accepted *= decay;
        verified *= decay;
    }
    void add_tokens(double more_accepted, double more_verified) {
        accepted += more_accepted;
        verified += more_verified;
    }
};

// Requests whose draft tokens are accepted alike.
struct Typical {
    Sums sums;

    bool is_known() const { return sums.drafts >= kEnough; }
    double saved(const Prices& prices) const {
        return sums.drafts > 0.0 ? prices.saved(sums.accepted, sums.verified) / sums.drafts : 0.0;
    }

    static constexpr double kEnough = 24.0;
};

// Seconds to ask for n requests: fixed + more * n ** 0.75, since they share passes. Learned as steps run.
class AskingCost {
   public:
    double seconds(std::size_t num_asked) const;
    void observe(double seconds, std::size_t num_asked);

   private:
    double fixed_ = 0.0, more_ = 0.0;
    int64_t num_observed_ = 0;
};

// What is known of one request.
struct AskRecord {
    Typical* typical = nullptr;
    Sums sums;
    int64_t num_asked = 0, asked_at = 0;
    int first_steps = 0;  // so many steps more it is asked whatever that saves
    int grace_steps = 0;  // so many steps more it counts as if it saved its share of the cost
    int64_t interval = 0;

    // Seconds that its next draft saves; `cost`: what it costs to ask for it.
    double expected(const Prices& prices, int64_t step, double cost) const;
    void asked(int64_t step);
    void add(int64_t accepted, int64_t verified);
    void take_back();

   private:
    bool counts_as_typical() const;
};

// kAllOrNone: one request that gains nothing keeps all from being asked.
enum class AskPolicy { kEach, kAllOrNone };

class Asking {
   public:
    explicit Asking(AskPolicy policy) : policy_(policy) {}

    void begin(AskRecord& record, double temperature, std::size_t num_requests);
    // Of these requests, which are asked in this step. Call once per step.
    void select(const std::vector<AskRecord*>& records, const Prices& prices, std::vector<char>& selected);
    void record(AskRecord& record, int64_t accepted, int64_t verified);
    // Let this request count as if it paid in the next step.
    void revive(AskRecord& record) const;
    // After a step in which nobody is asked: in so many steps after it nobody will be, as far as is known.
    int64_t pause(const std::vector<AskRecord*>& records) const;
    void skip(int64_t steps) { step_ += steps; }
    // Asking for so many took so long.
    void record_cost(double seconds, std::size_t num_asked);

    double cost(std::size_t num_asked) const { return cost_.seconds(num_asked); }
    int64_t step() const { return step_; }

   private:
    void find_paying(const std::vector<AskRecord*>& records);
    int64_t longest_interval(const Typical& typical, std::size_t num_requests) const;

    AskPolicy policy_;
    std::map<int, Typical> typical_;  // by temperature, to the nearest quarter
    AskingCost cost_;
    Prices prices_;
    int64_t step_ = 0;
    double share_ = 0.0;      // what asking costs for each request where all of the batch are asked
    bool is_steady_ = false;  // were all requests that are asked in this step asked in the one before?
    std::vector<char> paying_;
    std::vector<std::pair<double, std::size_t>> others_;
};

}  // namespace adaptive
