// For which requests is drafted: where draft tokens save more than drafting and verifying take.
//
// Drafting takes time even where nothing is verified: a part that all requests share, as the passes of a draft model,
// and a part for each. Requests are drafted for as long as their draft tokens together save more than that; the others
// only at an interval, all in the same steps, so that text which begins to repeat is noticed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "drafting/drafting_cost.hpp"

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

// Of the drafts, decayed.
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

// How much requests of a kind differ, as opposed to the drafts of one request: empirical Bayes (Efron and Morris,
// 1973). What two successive drafts of a request have in common is the request's own.
class Spread {
   public:
    // Accepted tokens of a draft, and of the request's draft before it.
    void add(double accepted, double before);

    // The number of a request's own drafts that weigh as much as what is typical.
    double prior_weight() const;

   private:
    double mean_ = 0.0, variance_ = 0.0, shared_ = 0.0;
    int64_t count_ = 0;
};

// What a request's drafts were worth lately, by how many in a row did not pay for drafting. Text goes on as it is for a
// while: what follows such a row is learned, for each length by itself.
constexpr int kNew = 0, kPaid = 1, kNumStates = 8;
int state_after(int64_t misses);

// Requests of about one temperature.
class Typical {
   public:
    // Seconds that the next draft of a request in this state saves. What is not known yet is taken from the state
    // before, and at first from what drafting costs: it is tried.
    double saved(int state, const Prices& prices, double cost) const;

    // What a draft gave that was made in this state, or soon after.
    void add(int state, double accepted, double verified);

    bool is_known() const { return num_drafts_ >= kEnough; }

    Spread spread;

   private:
    static constexpr int64_t kEnough = 96;  // a draft counts up to four times
    std::array<Sums, kNumStates> by_state_{};
    int64_t num_drafts_ = 0;
};

// What is known of one request.
struct DraftRecord {
    Typical* typical = nullptr;
    Sums sums;
    int64_t drafted_at = 0;
    bool was_drafted = false;
    bool is_revived = false;  // counts in the next step as if it saved its share of the cost
    int64_t interval = 0;
    int64_t misses = -1;     // drafts in a row that did not pay for drafting; negative before the first
    double latest = -1.0;    // accepted tokens of its latest draft; negative before the first
    std::deque<int> states;  // those in which it was drafted for lately, the latest first
    int64_t num_tokens = 0;  // of its text now
    int64_t num_read = 0;    // and when it was drafted for last

    int state() const { return state_after(misses); }
    // Seconds that its next draft saves; `cost`: what drafting it costs.
    double expected(const Prices& prices, int64_t step, double cost) const;
    void drafted_for(int64_t step);
    void take_back();
};

// kAllOrNone: one request that gains nothing keeps all from being drafted for.
enum class Selection { kEach, kAllOrNone };

class DraftingPolicy {
   public:
    explicit DraftingPolicy(Selection selection) : selection_(selection) {}

    // `warmth`: class of the request's temperature.
    void begin(DraftRecord& record, int warmth);
    // Decide which of these requests are drafted for in this step. Call once per step. `depth`: of the drafts that are
    // expected.
    void select(const std::vector<DraftRecord*>& records, const Prices& prices, double depth);
    bool is_selected(const DraftRecord& record) const { return record.was_drafted && record.drafted_at == step_; }
    std::size_t num_selected() const { return num_selected_; }
    // What became of its draft: nothing where there was none, or none was verified.
    void record(DraftRecord& record, int64_t accepted, int64_t verified);
    // Let this request count as if it paid in the next step.
    void revive(DraftRecord& record) const;
    // After a step in which nobody is drafted for: the number of steps after it in which nobody will be, as far as is
    // known.
    int64_t idle_steps(const std::vector<DraftRecord*>& records) const;
    void skip(int64_t steps) { step_ += steps; }
    // Drafting for `num_drafting` requests took `seconds`, the deepest draft had `depth` levels, and each after the
    // first took `pass_seconds`, 0 if unknown.
    void record_cost(double seconds, std::size_t num_drafting, double depth, double pass_seconds);

    // Without what the drafters read: they read it once, whenever they draft.
    double cost(std::size_t num_drafting, double depth) const { return cost_.seconds({num_drafting, depth, 0.0}); }
    double of_level(std::size_t num_drafting) const { return cost_.of_level(num_drafting); }
    int64_t step() const { return step_; }

   private:
    void find_paying(const std::vector<DraftRecord*>& records);
    // At least `interval` steps, doubled until a draft that loses `lost` seconds takes a small share of the time.
    int64_t affordable(int64_t interval, double lost) const;

    Selection selection_;
    std::map<int, Typical> typical_;  // by class of temperature
    DraftingCost cost_;
    Prices prices_;
    int64_t step_ = 0;
    std::size_t num_selected_ = 0;
    double depth_ = 1.0;     // of the drafts that are expected
    double share_ = 0.0;     // what drafting costs for each request where all of the batch are drafted for
    double probing_ = 0.0;   // what other requests take per step, since they are drafted for at their interval anyway
    double cold_ = 1.0;      // what drafting takes after idle steps, in costs of drafting that goes on
    int64_t gap_ = 0;        // steps since those that are drafted for now last were, at most
    double rows_ = 0.0;      // tokens that these got meanwhile
    bool is_known_ = false;  // were all that are drafted for in this step drafted for before? Others have a prompt.
    std::vector<char> paying_;
    std::vector<double> expected_;  // of each request
    std::vector<std::pair<double, std::size_t>> ranked_;
};

}  // namespace adaptive
