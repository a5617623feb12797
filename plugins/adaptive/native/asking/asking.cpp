#include "asking/asking.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace adaptive {

namespace {

constexpr double kDecay = 0.95, kTypicalDecay = 0.99;  // of earlier drafts, per draft
constexpr double kFading = 0.99;  // of a request's drafts, per step in which it is not asked: its text changes
constexpr int kFirstDrafts = 32;  // of each request, that count for what is typical
constexpr double kPriorWeight = 6.0, kMostTypical = 1.5;
constexpr int kFirstGrace = 4, kGrace = 1;
constexpr double kDoubtful = 0.5;  // share of the cost that requests like a new one saved, for it to be tried at all
constexpr int kDoubtfulGrace = 1;
constexpr int64_t kMinInterval = 16, kMaxInterval = 48, kLongestInterval = 128;
constexpr int64_t kLongestPause = 15;
constexpr double kProbeShare = 0.01;  // of the time that questions which pay nothing may take
constexpr double kExponent = 0.75, kCostRate = 0.05, kReferenceRequests = 4.0;
constexpr double kSlack = 1e-9;  // of rounding, where savings just make up for the cost

}  // namespace

double AskingCost::seconds(std::size_t num_asked) const {
    return num_asked ? fixed_ + more_ * std::pow(static_cast<double>(num_asked), kExponent) : 0.0;
}

void AskingCost::observe(double seconds, std::size_t num_asked) {
    if (num_asked == 0) return;
    ++num_observed_;
    double power = std::pow(static_cast<double>(num_asked), kExponent), expected = this->seconds(num_asked);
    if (expected <= 0.0) {
        more_ = seconds / power;
        return;
    }
    // a normalised gradient step on both parts; an outlier counts as twice the expectation at most
    double error = std::min(seconds, 2.0 * expected) - expected;
    double feature = power / std::pow(kReferenceRequests, kExponent);
    double rate = std::max(kCostRate, 1.0 / static_cast<double>(num_observed_)) / (1.0 + feature * feature);
    double fixed = fixed_ + rate * error;
    double more = more_ + rate * error * feature / std::pow(kReferenceRequests, kExponent);
    fixed_ = std::max(0.0, fixed);
    more_ = std::max(0.0, more + std::min(fixed, 0.0) / power);
}

bool AskRecord::counts_as_typical() const { return num_asked <= kFirstDrafts; }

double AskRecord::expected(const Prices& prices, int64_t step, double cost) const {
    double weight = std::pow(kFading, static_cast<double>(step - asked_at - 1));
    double saved = weight * prices.saved(sums.accepted, sums.verified), drafts = weight * sums.drafts;
    if (typical->is_known()) {
        saved += kPriorWeight * std::min(typical->saved(prices), kMostTypical * cost);
        drafts += kPriorWeight;
    }
    return drafts > 0.0 ? saved / drafts : 0.0;
}

void AskRecord::asked(int64_t step) {
    first_steps = std::max(first_steps - 1, 0);
    grace_steps = std::max(grace_steps - 1, 0);
    double fading = num_asked ? std::pow(kFading, static_cast<double>(std::max<int64_t>(step - asked_at - 1, 0))) : 1.0;
    ++num_asked;
    asked_at = step;
    sums.add_draft(kDecay * fading);
    if (counts_as_typical()) typical->sums.add_draft(kTypicalDecay);
}

void AskRecord::add(int64_t accepted, int64_t verified) {
    sums.add_tokens(static_cast<double>(accepted), static_cast<double>(verified));
    if (counts_as_typical()) typical->sums.add_tokens(static_cast<double>(accepted), static_cast<double>(verified));
}

void AskRecord::take_back() {
    if (num_asked == 0) return;
    sums.drafts = std::max(0.0, sums.drafts - 1.0);
    if (counts_as_typical()) typical->sums.drafts = std::max(0.0, typical->sums.drafts - 1.0);
    --num_asked;
}

void Asking::begin(AskRecord& record, double temperature, std::size_t num_requests) {
    Typical& typical = typical_[static_cast<int>(std::lround(4.0 * temperature))];
    record.typical = &typical;
    record.first_steps = kFirstGrace;
    record.interval = kMinInterval;
    if (!typical.is_known()) return;
    double saved = typical.saved(prices_);
    if (saved < share_) {
        record.first_steps = saved >= kDoubtful * share_ ? kDoubtfulGrace : 0;
        record.interval = longest_interval(typical, num_requests);
    }
}

void Asking::select(const std::vector<AskRecord*>& records, const Prices& prices, std::vector<char>& selected) {
    ++step_;
    prices_ = prices;
    share_ = records.empty() ? 0.0 : cost_.seconds(records.size()) / static_cast<double>(records.size());
    find_paying(records);
    selected.assign(records.size(), 0);
    is_steady_ = true;
    for (std::size_t i = 0; i < records.size(); ++i) {
        AskRecord& record = *records[i];
        if (paying_[i]) {
            if (!record.first_steps) record.interval = kMinInterval;
        } else if (step_ % record.interval == 0) {
            record.interval = std::min(2 * record.interval, longest_interval(*record.typical, records.size()));
        } else {
            continue;
        }
        is_steady_ = is_steady_ && record.asked_at == step_ - 1;
        record.asked(step_);
        selected[i] = 1;
    }
}

void Asking::find_paying(const std::vector<AskRecord*>& records) {
    paying_.assign(records.size(), 0);
    others_.clear();
    std::size_t num_new = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
        const AskRecord& record = *records[i];
        if (record.first_steps) {
            paying_[i] = 1;
            ++num_new;
            continue;
        }
        double saved = record.expected(prices_, step_, share_);
        others_.emplace_back(record.grace_steps ? std::max(saved, share_) : saved, i);
    }
    std::sort(others_.begin(), others_.end(), std::greater<>());
    double before = cost_.seconds(num_new), best = -kSlack * share_, saved_by_all = 0.0;
    std::size_t count = 0;
    for (std::size_t asked = 1; asked <= others_.size(); ++asked) {
        saved_by_all += others_[asked - 1].first;
        double net = saved_by_all - (cost_.seconds(num_new + asked) - before);
        if (net >= best) {
            best = net;
            count = asked;
        }
    }
    if (policy_ == AskPolicy::kAllOrNone && count < others_.size()) count = 0;
    for (std::size_t n = 0; n < count; ++n) paying_[others_[n].second] = 1;
}

int64_t Asking::longest_interval(const Typical& typical, std::size_t num_requests) const {
    int64_t longest = kMaxInterval;
    double allowed = kProbeShare * prices_.plain_step;
    double lost = typical.is_known() ? share_ - std::max(0.0, typical.saved(prices_)) : share_;
    while (allowed > 0.0 && longest < kLongestInterval &&
           lost * static_cast<double>(num_requests) > static_cast<double>(longest) * allowed)
        longest *= 2;
    return longest;
}

int64_t Asking::pause(const std::vector<AskRecord*>& records) const {
    int64_t pause = kLongestPause;
    for (const AskRecord* record : records) pause = std::min(pause, record->interval - step_ % record->interval - 1);
    return pause;
}

void Asking::record(AskRecord& record, int64_t accepted, int64_t verified) {
    record.add(accepted, verified);
    double saved = prices_.saved(static_cast<double>(accepted), static_cast<double>(verified));
    if (saved > 0.0 && saved >= share_) revive(record);
}

void Asking::revive(AskRecord& record) const { record.grace_steps = std::max(record.grace_steps, kGrace); }

void Asking::record_cost(double seconds, std::size_t num_asked) {
    if (is_steady_) cost_.observe(seconds, num_asked);
}

}  // namespace adaptive
