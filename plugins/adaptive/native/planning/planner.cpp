#include "planning/planner.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

namespace adaptive {

namespace {

constexpr double kFirstReach = 32.0, kLeastReach = 4.0, kMostReach = 4096.0, kReachRate = 0.25;
// A draft may have this many draft tokens more than were chosen of the last ones.
constexpr double kReachFactor = 1.5, kReachMore = 2.0;
constexpr double kLeastLevel = 0.01;  // of a plain step: below, depth costs nothing to speak of
constexpr int32_t kDeepest = 64;
// Of the steps in which no draft token pays, every kExploreInterval-th verifies one, and of the others every
// kExploreInterval-th verifies one more than pays, so that the estimates keep up; as often, drafts are one level deeper
// than pays.
constexpr int64_t kExploreInterval = 32;
constexpr double kGainRate = 0.1;

// The nodes by falling survival. Parents come before their children, which never survive them.
void sort_nodes(std::vector<double>& survival, std::vector<int32_t>& order) {
    order.resize(survival.size());
    std::iota(order.begin(), order.end(), 0);
    if (std::is_sorted(survival.begin(), survival.end(), std::greater<>())) return;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return survival[a] > survival[b]; });
    std::stable_sort(survival.begin(), survival.end(), std::greater<>());
}

int32_t num_levels(const Draft& draft) {
    if (draft.is_chain) return draft.size();
    std::vector<int32_t> depths;
    for (int32_t parent : draft.parents) depths.push_back(parent == kRoot ? 1 : depths[parent] + 1);
    return depths.empty() ? 0 : *std::max_element(depths.begin(), depths.end());
}

bool first_is_right(const Draft& draft, const std::vector<int64_t>& tokens) {
    if (tokens.empty()) return false;
    for (int32_t node = 0; node < draft.size(); ++node) {
        if (draft.parents[node] == kRoot && draft.tokens[node] == tokens[0]) return true;
    }
    return false;
}

}  // namespace

Planner::Planner(Objective objective, double min_gain)
    : drafting(objective == Objective::kLatency ? Selection::kAllOrNone : Selection::kEach), objective_(objective),
      min_gain_(min_gain) {
    latest_source_.fill(-1);
}

int warmth_of(double temperature) { return std::min(static_cast<int>(std::lround(4.0 * temperature)), kWarmths - 1); }

Request* Planner::find(const std::string& id) {
    auto found = requests_.find(id);
    return found == requests_.end() ? nullptr : found->second.get();
}

Request* Planner::find_or_begin(const std::string& id, double temperature) {
    std::unique_ptr<Request>& request = requests_[id];
    if (!request) {
        request = std::make_unique<Request>();
        request->reach = kFirstReach;
        request->warmth = warmth_of(temperature);
        request->source = latest_source_[request->warmth];
        drafting.begin(request->record, request->warmth);
    }
    return request.get();
}

void Planner::keep_only(const std::vector<std::string>& ids) {
    std::unordered_set<std::string> kept(ids.begin(), ids.end());
    for (auto it = requests_.begin(); it != requests_.end();) it = kept.count(it->first) ? ++it : requests_.erase(it);
}

void Planner::limits(const std::vector<Candidate>& candidates, const Prices& prices, std::vector<int32_t>& limits) {
    drafting_seconds_ = 0.0;  // no choice followed the latest drafts
    records_.clear();
    for (const Candidate& each : candidates) {
        Request& request = *each.request;
        request.useful = each.most > 0;
        request.record.num_tokens = each.num_tokens;
        if (request.useful) records_.push_back(&request.record);
    }
    drafting.select(records_, prices, static_cast<double>(std::min(depth_, kDeepest / 4)));
    idle_steps_ = drafting.num_selected() == 0 ? drafting.idle_steps(records_) : 0;
    bound_depths(candidates, prices);
    limits.assign(candidates.size(), 0);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        Request& request = *candidates[i].request;
        if (drafting.is_selected(request.record)) {
            limits[i] = std::min(candidates[i].most, static_cast<int32_t>(std::lround(request.reach)));
            if (request.chains && request.source >= 0) limits[i] = std::min(limits[i], depths_[i]);
        }
        note_limit(request, limits[i], false);
    }
}

void Planner::measure(const std::vector<Candidate>& candidates, std::vector<int32_t>& limits) {
    drafting_seconds_ = 0.0;
    drafting.skip(1);
    idle_steps_ = 0;
    for (const Candidate& each : candidates) {
        each.request->useful = each.most > 0;
        note_limit(*each.request, 0, true);
    }
    limits.assign(candidates.size(), 0);
}

void Planner::note_limit(Request& request, int32_t limit, bool is_measured) {
    request.limit_before = request.limit;
    request.limit = limit;
    request.was_measured = request.is_measured;
    request.is_measured = is_measured;
    request.seen_at = drafting.step();
}

// Drafts share their passes. Another level is made as long as it raises the sum of the logarithms of the requests'
// speeds (where throughput counts, the logarithm of their sum), and a request takes part as long as its own draft token
// does. Whether to draft at all is decided before.
void Planner::bound_depths(const std::vector<Candidate>& candidates, const Prices& prices) {
    std::size_t count = candidates.size();
    std::size_t num_drafting = drafting.num_selected();
    if (num_drafting == 0) return;
    double of_level = drafting.of_level(num_drafting), requests = static_cast<double>(count);
    depths_.assign(count, kDeepest);
    depth_ = kDeepest;
    if (of_level <= kLeastLevel * prices.plain_step) return;
    bool explores = ++num_bounded_ % kExploreInterval == 0;
    reached_.assign(count, 1.0);
    expected_.assign(count, 1.0);
    double total = requests;  // expected tokens of all
    depths_.assign(count, 0);
    double step = prices.plain_step + drafting.cost(num_drafting, 1.0);
    for (depth_ = 1; depth_ < kDeepest; ++depth_) {
        double gain = 0.0, verified = 0.0;
        taking_part_.clear();
        for (std::size_t i = 0; i < count; ++i) {
            const Request& request = *candidates[i].request;
            bool takes_part =
                drafting.is_selected(request.record) && request.source >= 0 && candidates[i].most >= depth_;
            if (!takes_part || depths_[i] < depth_ - 1) continue;
            double right = corrected(survival.at_depth(request.source, depth_), request.odds.ratio());
            reached_[i] *= right;
            double gained = objective_ == Objective::kThroughput ? requests * std::log1p(reached_[i] / total)
                                                                 : std::log1p(reached_[i] / expected_[i]);
            double own = gained - requests * prices.verified / step;
            if (own <= 0.0 && depth_ > 1 && !explores) continue;
            taking_part_.push_back(i);
            gain += std::max(own, 0.0);
            verified += prices.verified;
        }
        bool pays = depth_ == 1 || gain > requests * of_level / step;
        if (!pays && !explores) break;
        if (!pays) explores = false;
        for (std::size_t i : taking_part_) {
            depths_[i] = depth_;
            expected_[i] += reached_[i];
            total += reached_[i];
        }
        if (taking_part_.empty()) break;
        step += verified + (depth_ > 1 ? of_level : 0.0);
    }
    depth_ = std::max(depth_ - 1, 1);
}

void Planner::observe_drafting(double seconds, std::size_t num_drafting, double pass_seconds) {
    drafting_seconds_ = seconds;  // how deep the drafts are shows when they are chosen from
    num_drafting_ = num_drafting;
    pass_seconds_ = pass_seconds;
}

void Planner::skip(int64_t steps) {
    for (auto& [id, request] : requests_) {
        if (request->seen_at != drafting.step()) continue;
        count(*request, request->useful ? Reason::kDraftedRarely : Reason::kNotWanted, 0, steps);
    }
    drafting.skip(steps);
}

void Planner::count(Request& request, Reason reason, int64_t width, int64_t steps) {
    stats.steps[static_cast<int>(reason)] += steps;
    request.stats.steps[static_cast<int>(reason)] += steps;
    if (stats.widths.size() <= static_cast<std::size_t>(width)) stats.widths.resize(width + 1, 0);
    stats.widths[width] += steps;
}

void Planner::choose(const std::vector<Request*>& requests, const std::vector<const Draft*>& drafts,
                     const double* seconds, std::size_t most, std::vector<std::vector<int32_t>>& chosen) {
    std::size_t count = requests.size();
    survivals_.resize(count);
    orders_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
        survivals_[i].clear();
        if (drafts[i] == nullptr) continue;
        survival.estimate(*drafts[i], &requests[i]->odds, survivals_[i]);
        sort_nodes(survivals_[i], orders_[i]);
    }
    std::size_t within = bearable(seconds, most);
    rank(objective_, survivals_, std::max(within, std::min<std::size_t>(most, 1)), ranked_);  // one to try
    Choice best = best_prefix(ranked_, seconds, count, within);
    if (!ranked_.empty()) usual_gain_ += kGainRate * (best.value / static_cast<double>(count) - usual_gain_);
    std::size_t taken = explored(best.count, best.value > min_gain_, ranked_.size());
    std::vector<std::size_t> widths(count, 0);
    for (std::size_t n = 0; n < taken; ++n) ++widths[ranked_[n].place];
    chosen.assign(count, {});
    double deepest = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
        Request& request = *requests[i];
        request.predicted.clear();
        request.no_budget = false;
        if (drafts[i] == nullptr) continue;
        request.source = latest_source_[request.warmth] = drafts[i]->source;
        request.chains = request.chains && drafts[i]->is_chain;
        deepest = std::max(deepest, static_cast<double>(num_levels(*drafts[i])));
        if (!drafts[i]->is_chain) depth_ = num_levels(*drafts[i]);  // its drafter decides how deep it is
        request.no_budget = most == 0;
        double width = static_cast<double>(widths[i]);
        if (widths[i] == drafts[i]->parents.size() && drafts[i]->size() >= request.limit)
            request.reach = 2.0 * std::max(request.reach, width);
        else
            request.reach += kReachRate * (kReachFactor * width + kReachMore - request.reach);
        request.reach = std::min(std::max(request.reach, kLeastReach), kMostReach);
        std::vector<std::pair<int32_t, double>> nodes;
        for (std::size_t n = 0; n < widths[i]; ++n) nodes.emplace_back(orders_[i][n], survivals_[i][n]);
        std::sort(nodes.begin(), nodes.end());
        for (auto& [node, predicted] : nodes) {
            chosen[i].push_back(node);
            request.predicted.push_back(predicted);
        }
    }
    if (deepest > 0.0)
        depth_ = std::min(depth_, static_cast<int32_t>(deepest));  // drafters may have a limit of their own
    if (drafting_seconds_ > 0.0) drafting.record_cost(drafting_seconds_, num_drafting_, deepest, pass_seconds_);
    drafting_seconds_ = 0.0;
}

std::size_t Planner::explored(std::size_t best, bool pays, std::size_t num_ranked) {
    if (num_ranked == 0) return 0;
    int64_t& steps = pays ? num_profitable_ : num_unprofitable_;
    bool explores = ++steps % kExploreInterval == 0;
    return std::min((pays ? best : 0) + (explores ? 1 : 0), num_ranked);
}

void Planner::learn(const Outcome& outcome) {
    Request& request = *outcome.request;
    if (outcome.proposed != nullptr && !outcome.tokens.empty())
        survival.observe(*outcome.proposed, outcome.tokens, &request.odds);
    int64_t accepted = static_cast<int64_t>(outcome.path.size());
    if (request.limit_before > 0 && !request.no_budget) drafting.record(request.record, accepted, outcome.drafted);
    if (outcome.drafted > 0) {
        std::size_t known = std::min(request.predicted.size(), static_cast<std::size_t>(outcome.drafted));
        for (std::size_t node = 0; node < known; ++node) {
            double predicted = request.predicted[node];
            bool hit =
                std::find(outcome.path.begin(), outcome.path.end(), static_cast<int32_t>(node)) != outcome.path.end();
            stats.calibration.add(predicted, hit);
            stats.predicted += predicted;
            request.stats.predicted += predicted;
        }
        stats.accepted += accepted;
        stats.verified += outcome.drafted;
        request.stats.accepted += accepted;
        request.stats.verified += outcome.drafted;
    } else if (outcome.proposed != nullptr && request.no_budget) {
        request.record.take_back();
    } else if (outcome.proposed != nullptr && first_is_right(*outcome.proposed, outcome.tokens)) {
        drafting.revive(request.record);  // it was right, though it was not trusted: the text may have changed
    }
    request.predicted.clear();
    if (!outcome.decodes) return;
    Reason reason = request.useful ? Reason::kDraftedRarely : Reason::kNotWanted;
    if (outcome.drafted > 0) {
        reason = Reason::kVerified;
    } else if (outcome.proposed != nullptr) {
        reason = request.no_budget ? Reason::kBudget : Reason::kDoesNotPay;
    } else if (request.limit_before > 0) {
        reason = Reason::kNoDraft;
    } else if (request.was_measured && request.useful) {
        reason = Reason::kMeasured;
    }
    count(request, reason, outcome.drafted, 1);
}

}  // namespace adaptive
