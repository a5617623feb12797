// Decides in every step for which requests drafters draft, how much of each draft is verified, and learns.
//
// Knows no Python: requests come as what is read of them. Owns what is known of each running request.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "drafting/policy.hpp"
#include "choosing/objective.hpp"
#include "estimation/draft.hpp"
#include "estimation/survival.hpp"
#include "planning/stats.hpp"

namespace adaptive {

// Classes of temperature: greedy, then by quarters.
constexpr int kWarmths = 9;
int warmth_of(double temperature);

struct Request {
    DraftRecord record;
    RequestOdds odds;
    RequestStats stats;
    int warmth = 0;  // class of its temperature: draft tokens are right as often as others at about the same
    double reach;    // draft tokens that are worth drafting
    int32_t limit = 0, limit_before = 0;  // draft tokens that were wanted in the latest step, and in the one before
    bool useful = false;
    bool no_budget = false;                          // for its draft
    bool is_measured = false, was_measured = false;  // as with limits: only to see what a plain step takes
    int64_t seen_at = 0;                             // the last step in which it was a candidate
    int source = -1;                                 // of its latest draft
    bool chains = true;                              // so far, its drafts were chains
    std::vector<double> predicted;  // survival of the draft tokens that were chosen, in the draft's order
};

struct Candidate {
    Request* request;
    int32_t most;        // draft tokens that could be of use
    int64_t num_tokens;  // of its text
};

// What is known of a span after its step.
struct Outcome {
    Request* request;
    const Draft* proposed;  // may be null
    int64_t drafted;
    std::vector<int64_t> tokens;
    std::vector<int32_t> path;  // accepted nodes of the verified draft
    bool decodes;               // one committed token, as opposed to a chunk of the prompt
};

class Planner {
   public:
    Planner(Objective objective, double min_gain);

    Request* find(const std::string& id);
    Request* find_or_begin(const std::string& id, double temperature);
    void forget(const std::string& id) { requests_.erase(id); }
    // Drop what is known of requests other than these.
    void keep_only(const std::vector<std::string>& ids);
    double level_seconds(std::size_t num_drafting) const { return drafting.of_level(num_drafting); }
    std::size_t num_known() const { return requests_.size(); }

    // The most draft tokens of each request; 0 for those that are not drafted for.
    void limits(const std::vector<Candidate>& candidates, const Prices& prices, std::vector<int32_t>& limits);
    // In place of that: nobody is drafted for, so that the next step shows what a plain one takes.
    void measure(const std::vector<Candidate>& candidates, std::vector<int32_t>& limits);

    // Steps after this one for which `limits` need not be called, as long as the same requests run.
    int64_t idle_steps() const { return idle_steps_; }
    // `steps` steps ran without a call of `limits`.
    void skip(int64_t steps);

    // What a request's draft tokens gain in a step with drafts, in logarithms of its speed, without what drafting
    // takes: a moving average.
    double usual_gain() const { return usual_gain_; }

    // Which nodes of each draft to verify. drafts[i] is null without one; seconds[n]: of a step with n draft tokens.
    void choose(const std::vector<Request*>& requests, const std::vector<const Draft*>& drafts, const double* seconds,
                std::size_t most, std::vector<std::vector<int32_t>>& chosen);

    void learn(const Outcome& outcome);

    // Drafting for `num_drafting` requests took `seconds`, and each of its passes after the first; 0 if unknown.
    void observe_drafting(double seconds, std::size_t num_drafting, double pass_seconds);

    Survival survival;
    DraftingPolicy drafting;
    Stats stats;

   private:
    void count(Request& request, Reason reason, int64_t width, int64_t steps);
    void note_limit(Request& request, int32_t limit, bool is_measured);
    void bound_depths(const std::vector<Candidate>& candidates, const Prices& prices);
    std::size_t explored(std::size_t best, bool pays, std::size_t num_ranked);

    Objective objective_;
    double min_gain_;
    std::unordered_map<std::string, std::unique_ptr<Request>> requests_;
    int64_t idle_steps_ = 0;
    double usual_gain_ = 0.0;
    std::array<int, kWarmths> latest_source_;  // of drafts by the class of their request's temperature
    double drafting_seconds_ = 0.0;            // of the drafts that come next; 0 where that is not known
    double pass_seconds_ = 0.0;
    std::size_t num_drafting_ = 0;
    int64_t num_bounded_ = 0;
    int32_t depth_ = 1;            // of the latest drafts
    std::vector<int32_t> depths_;  // of each request
    // of each request: P(all draft tokens so far are right), and the tokens that a step with them gives
    std::vector<double> reached_, expected_;
    std::vector<std::size_t> taking_part_;  // in the level
    int64_t num_unprofitable_ = 0, num_profitable_ = 0;
    std::vector<DraftRecord*> records_;
    std::vector<std::vector<double>> survivals_;
    std::vector<std::vector<int32_t>> orders_;
    std::vector<Ranked> ranked_;
};

}  // namespace adaptive
