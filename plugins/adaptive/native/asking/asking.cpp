#include "asking/asking.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace adaptive {

namespace {

constexpr double kDecay = 0.95, kTypicalDecay = 0.99;  // of earlier drafts, per draft
constexpr double kFading = 0.99;  // of a request's drafts, per step in which it is not asked: its text changes
constexpr double kEnoughOfState = 6.0, kHopeful = 1.5;  // what is not known counts so much more than asking costs
constexpr std::size_t kHorizon = 4;  // a draft counts for the states in which so many last ones were asked
constexpr double kFirstWeight = 12.0, kLeastWeight = 12.0, kMostWeight = 50.0, kSpreadRate = 0.02;
constexpr int64_t kEnoughOfSpread = 48;
constexpr int64_t kChanged = 4;   // misses before a draft that pays
constexpr int64_t kPatience = 8;  // misses of a request whose like are not known yet
constexpr int64_t kMinInterval = 16, kMaxInterval = 48, kLongestInterval = 128, kLongestPause = 15;
constexpr int64_t kSteady = 2;  // steps between two questions: no pause
constexpr double kProbingRate = 0.2, kMostOutlier = 2.0;
constexpr double kProbeShare = 0.005;  // of the time that questions which pay nothing may take
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

double AskRecord::expected(const Prices& prices, int64_t step, double cost) const {
    double fading = was_asked ? std::pow(kFading, static_cast<double>(step - asked_at - 1)) : 0.0;
    double saved = fading * prices.saved(sums.accepted, sums.verified), drafts = fading * sums.drafts;
    double weight = typical->spread.prior_weight();
    return (saved + weight * typical->saved(state(), prices, cost)) / (drafts + weight);
}

void AskRecord::asked(int64_t step) {
    double fading = was_asked ? std::pow(kFading, static_cast<double>(std::max<int64_t>(step - asked_at - 1, 0))) : 1.0;
    was_asked = true;
    num_read = num_tokens;
    is_revived = false;
    asked_at = step;
    sums.add_draft(kDecay * fading);
    states.push_front(state());
    if (states.size() > kHorizon) states.pop_back();
}

void AskRecord::take_back() {
    sums.drafts = std::max(0.0, sums.drafts - 1.0);
    if (!states.empty()) states.pop_front();
}

void Asking::begin(AskRecord& record, int warmth) {
    record.typical = &typical_[warmth];
    record.interval = 0;  // depends on what asking takes
}

void Asking::select(const std::vector<AskRecord*>& records, const Prices& prices, double depth) {
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
        AskRecord& record = *records[i];
        if (paying_[i]) {
            record.interval = kMinInterval;
        } else {
            double lost = (share_ - std::max(0.0, expected_[i])) * static_cast<double>(records.size());
            if (record.interval == 0) record.interval = affordable(kMinInterval, lost);
            if (step_ % record.interval != 0) continue;
            record.interval = std::min(2 * record.interval, affordable(kMaxInterval, lost));
        }
        is_known_ = is_known_ && record.was_asked;
        gap_ = std::max(gap_, step_ - record.asked_at);
        rows_ += static_cast<double>(record.num_tokens - record.num_read);
        record.asked(step_);
        ++num_selected_;
    }
}

void Asking::find_paying(const std::vector<AskRecord*>& records) {
    paying_.assign(records.size(), 0);
    expected_.clear();
    ranked_.clear();
    for (const AskRecord* record : records) {
        double saved = record->expected(prices_, step_, share_);
        expected_.push_back(saved);
        ranked_.emplace_back(record->is_revived ? std::max(saved, share_) : saved, ranked_.size());
    }
    std::sort(ranked_.begin(), ranked_.end(), std::greater<>());
    double best = -kSlack * share_ - probing_ * static_cast<double>(ranked_.size()), saved_by_all = 0.0;
    std::size_t count = 0;
    for (std::size_t asked = 1; asked <= ranked_.size(); ++asked) {
        saved_by_all += ranked_[asked - 1].first;
        double others = static_cast<double>(ranked_.size() - asked);
        double net = saved_by_all - cost(asked, depth_) - others * probing_;
        if (net >= best) {
            best = net;
            count = asked;
        }
    }
    if (policy_ == AskPolicy::kAllOrNone && count < ranked_.size()) count = 0;
    for (std::size_t n = 0; n < count; ++n) paying_[ranked_[n].second] = 1;
    for (std::size_t i = 0; i < records.size(); ++i) {
        if (!records[i]->typical->is_known() && records[i]->misses < kPatience) paying_[i] = 1;
    }
}

int64_t Asking::affordable(int64_t interval, double lost) const {
    double allowed = kProbeShare * prices_.plain_step;
    while (allowed > 0.0 && interval < kLongestInterval && lost > static_cast<double>(interval) * allowed)
        interval *= 2;
    return interval;
}

void Asking::record(AskRecord& record, int64_t num_accepted, int64_t num_verified) {
    double accepted = static_cast<double>(num_accepted), verified = static_cast<double>(num_verified);
    bool paid = num_accepted > 0 && prices_.saved(accepted, verified) >= share_;
    if (paid && record.misses >= kChanged) record.sums = {1.0, 0.0, 0.0};  // the text has changed: it counts alone
    record.sums.add_tokens(accepted, verified);
    for (int state : record.states) record.typical->add(state, accepted, verified);
    if (record.latest >= 0.0) record.typical->spread.add(accepted, record.latest);
    record.latest = accepted;
    record.misses = paid ? 0 : std::max<int64_t>(record.misses, 0) + 1;
}

void Asking::revive(AskRecord& record) const { record.is_revived = true; }

int64_t Asking::pause(const std::vector<AskRecord*>& records) const {
    int64_t pause = kLongestPause;
    for (const AskRecord* record : records) pause = std::min(pause, record->interval - step_ % record->interval - 1);
    return pause;
}

void Asking::record_cost(double seconds, std::size_t num_asked, double depth, double pass_seconds) {
    if (!is_known_ || num_asked == 0) return;
    Question question{num_asked, depth, rows_};
    // after a pause nothing is in the processor's caches: that tells what asking takes at most
    if (gap_ <= kSteady || seconds < cost_.seconds(question)) cost_.observe(seconds, question, pass_seconds);
    if (gap_ < kMinInterval) return;
    seconds = std::min(seconds, kMostOutlier * cost_.seconds(question));
    double beyond_rows = std::max(cost(num_asked, depth), seconds - cost_.of_row() * rows_);
    double each = beyond_rows / static_cast<double>(gap_ * static_cast<int64_t>(num_asked));
    probing_ += (probing_ > 0.0 ? kProbingRate : 1.0) * (each - probing_);
}

}  // namespace adaptive
