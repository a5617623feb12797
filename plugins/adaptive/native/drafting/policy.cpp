#include "drafting/policy.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace adaptive {

namespace {

constexpr double kDecay = 0.95, kTypicalDecay = 0.99;  // of earlier drafts, per draft
constexpr double kFading = 0.99;  // of a request's drafts, per step in which it is not drafted for: its text changes
constexpr double kEnoughOfState = 6.0, kHopeful = 1.5;  // what is not known counts this much more than drafting costs
constexpr std::size_t kHorizon = 4;                     // a draft counts for the states of this many last drafts
constexpr double kFirstWeight = 12.0, kLeastWeight = 12.0, kMostWeight = 50.0, kSpreadRate = 0.02;
constexpr int64_t kEnoughOfSpread = 48;
constexpr int64_t kChanged = 4;   // misses before a draft that pays
constexpr int64_t kPatience = 8;  // misses of a request whose like are not known yet
constexpr int64_t kMinInterval = 16, kMaxInterval = 48, kLongestInterval = 128, kMostIdleSteps = kLongestInterval - 1;
constexpr int64_t kSteady = 2;  // steps between two drafts: none are idle
constexpr double kProbingRate = 0.2, kMostOutlier = 2.0;
constexpr double kProbeShare = 0.005;  // of the time that drafts which pay nothing may take
constexpr double kSlack = 1e-9;        // of rounding, where savings just make up for the cost

}  // namespace

void Spread::add(double accepted, double before) {
    ++count_;
    double rate = std::max(kSpreadRate, 1.0 / static_cast<double>(count_));
    double off = accepted - mean_, off_before = before - mean_;
    mean_ += rate * off;
    variance_ += rate * (off * off - variance_);
    shared_ += rate * (off * off_before - shared_);
}

double Spread::prior_weight() const {
    if (count_ < kEnoughOfSpread) return kFirstWeight;
    double shared = std::max(shared_, 0.0), own = std::max(variance_ - shared, 0.0);
    return own >= kMostWeight * shared ? kMostWeight : std::max(kLeastWeight, own / shared);
}

int state_after(int64_t misses) {
    if (misses < 0) return kNew;
    int state = kPaid;
    for (int64_t most : {0, 1, 2, 4, 8, 16}) {
        if (misses <= most) return state;
        ++state;
    }
    return state;
}

double Typical::saved(int state, const Prices& prices, double cost) const {
    double before = kHopeful * cost;
    // new -> one miss -> two and so on; what follows a draft that paid is known by itself
    if (state > kPaid) before = saved(state == kPaid + 1 ? kNew : state - 1, prices, cost);
    const Sums& sums = by_state_[state];
    return (prices.saved(sums.accepted, sums.verified) + kEnoughOfState * before) / (sums.drafts + kEnoughOfState);
}

void Typical::add(int state, double accepted, double verified) {
    ++num_drafts_;
    by_state_[state].add_draft(kTypicalDecay);
    by_state_[state].add_tokens(accepted, verified);
}

double DraftRecord::expected(const Prices& prices, int64_t step, double cost) const {
    double fading = was_drafted ? std::pow(kFading, static_cast<double>(step - drafted_at - 1)) : 0.0;
    double saved = fading * prices.saved(sums.accepted, sums.verified), drafts = fading * sums.drafts;
    double weight = typical->spread.prior_weight();
    return (saved + weight * typical->saved(state(), prices, cost)) / (drafts + weight);
}

void DraftRecord::drafted_for(int64_t step) {
    double fading =
        was_drafted ? std::pow(kFading, static_cast<double>(std::max<int64_t>(step - drafted_at - 1, 0))) : 1.0;
    was_drafted = true;
    num_read = num_tokens;
    is_revived = false;
    drafted_at = step;
    sums.add_draft(kDecay * fading);
    states.push_front(state());
    if (states.size() > kHorizon) states.pop_back();
}

void DraftRecord::take_back() {
    sums.drafts = std::max(0.0, sums.drafts - 1.0);
    if (!states.empty()) states.pop_front();
}

void DraftingPolicy::begin(DraftRecord& record, int warmth) {
    record.typical = &typical_[warmth];
    record.interval = 0;  // depends on what drafting takes
}

void DraftingPolicy::select(const std::vector<DraftRecord*>& records, const Prices& prices, double depth) {
    ++step_;
    depth_ = depth;
    prices_ = prices;
    share_ = records.empty() ? 0.0 : cost(records.size(), depth) / static_cast<double>(records.size());
    find_paying(records);
    num_selected_ = 0;
    is_known_ = true;
    gap_ = 0;
    rows_ = 0.0;
    for (std::size_t i = 0; i < records.size(); ++i) {
        DraftRecord& record = *records[i];
        if (paying_[i]) {
            record.interval = kMinInterval;
        } else {
            double lost = (cold_ * share_ - std::max(0.0, expected_[i])) * static_cast<double>(records.size());
            if (record.interval == 0) record.interval = affordable(kMinInterval, lost);
            if (step_ % record.interval != 0) continue;
            record.interval = std::min(2 * record.interval, affordable(kMaxInterval, lost));
        }
        is_known_ = is_known_ && record.was_drafted;
        gap_ = std::max(gap_, step_ - record.drafted_at);
        rows_ += static_cast<double>(record.num_tokens - record.num_read);
        record.drafted_for(step_);
        ++num_selected_;
    }
}

void DraftingPolicy::find_paying(const std::vector<DraftRecord*>& records) {
    paying_.assign(records.size(), 0);
    expected_.clear();
    ranked_.clear();
    for (const DraftRecord* record : records) {
        double saved = record->expected(prices_, step_, share_);
        expected_.push_back(saved);
        ranked_.emplace_back(record->is_revived ? std::max(saved, share_) : saved, ranked_.size());
    }
    std::sort(ranked_.begin(), ranked_.end(), std::greater<>());
    double best = -kSlack * share_ - probing_ * static_cast<double>(ranked_.size()), saved_by_all = 0.0;
    std::size_t count = 0;
    for (std::size_t num_drafting = 1; num_drafting <= ranked_.size(); ++num_drafting) {
        saved_by_all += ranked_[num_drafting - 1].first;
        double others = static_cast<double>(ranked_.size() - num_drafting);
        double net = saved_by_all - cost(num_drafting, depth_) - others * probing_;
        if (net >= best) {
            best = net;
            count = num_drafting;
        }
    }
    if (selection_ == Selection::kAllOrNone && count < ranked_.size()) count = 0;
    for (std::size_t n = 0; n < count; ++n) paying_[ranked_[n].second] = 1;
    for (std::size_t i = 0; i < records.size(); ++i) {
        if (!records[i]->typical->is_known() && records[i]->misses < kPatience) paying_[i] = 1;
    }
}

int64_t DraftingPolicy::affordable(int64_t interval, double lost) const {
    double allowed = kProbeShare * prices_.plain_step;
    while (allowed > 0.0 && interval < kLongestInterval && lost > static_cast<double>(interval) * allowed)
        interval *= 2;
    return interval;
}

void DraftingPolicy::record(DraftRecord& record, int64_t num_accepted, int64_t num_verified) {
    double accepted = static_cast<double>(num_accepted), verified = static_cast<double>(num_verified);
    bool paid = num_accepted > 0 && prices_.saved(accepted, verified) >= share_;
    if (paid && record.misses >= kChanged) record.sums = {1.0, 0.0, 0.0};  // the text has changed: it counts alone
    record.sums.add_tokens(accepted, verified);
    for (int state : record.states) record.typical->add(state, accepted, verified);
    if (record.latest >= 0.0) record.typical->spread.add(accepted, record.latest);
    record.latest = accepted;
    record.misses = paid ? 0 : std::max<int64_t>(record.misses, 0) + 1;
}

void DraftingPolicy::revive(DraftRecord& record) const { record.is_revived = true; }

int64_t DraftingPolicy::idle_steps(const std::vector<DraftRecord*>& records) const {
    int64_t steps = kMostIdleSteps;
    for (const DraftRecord* record : records) steps = std::min(steps, record->interval - step_ % record->interval - 1);
    return steps;
}

void DraftingPolicy::record_cost(double seconds, std::size_t num_drafting, double depth, double pass_seconds) {
    if (!is_known_ || num_drafting == 0) return;
    DraftedStep drafted{num_drafting, depth, rows_};
    // after idle steps nothing is in the processor's caches: this is what drafting takes at most
    if (gap_ <= kSteady || seconds < cost_.seconds(drafted)) cost_.observe(seconds, drafted, pass_seconds);
    if (gap_ < kMinInterval) return;
    seconds = std::min(seconds, kMostOutlier * cost_.seconds(drafted));
    double usual = cost(num_drafting, depth), beyond_rows = std::max(usual, seconds - cost_.of_row() * rows_);
    if (usual > 0.0) cold_ += kProbingRate * (beyond_rows / usual - cold_);
    double each = beyond_rows / static_cast<double>(gap_ * static_cast<int64_t>(num_drafting));
    probing_ += (probing_ > 0.0 ? kProbingRate : 1.0) * (each - probing_);
}

}  // namespace adaptive
