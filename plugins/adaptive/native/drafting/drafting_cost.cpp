#include "drafting/drafting_cost.hpp"

#include <algorithm>
#include <cmath>

namespace adaptive {

namespace {

constexpr double kExponent = 0.75, kPassRate = 0.1, kMostOutlier = 2.0;
// Of the first answer's time: what of it each part is taken to be, and how far off that may be.
constexpr std::array<double, 3> kFirst = {0.35, 0.65, 0.0}, kFirstDeviations = {0.3, 0.5, 0.02};
constexpr double kLeast = 1e-9;                                        // seconds: below any clock
constexpr double kFirstNoise = 0.2, kNoiseRate = 0.05, kDrift = 0.02;  // deviations; per measurement

// Of a part, where an answer takes `seconds`: as before anything was seen.
double largest_variance(int part, double seconds, double feature) {
    double deviation = kFirstDeviations[part] * seconds / (part == 1 ? feature : 1.0);
    return deviation * deviation;
}

std::size_t size_class(std::size_t num_requests) {
    std::size_t size = 0;
    for (; num_requests > 1; num_requests /= 2) ++size;
    return size;
}

}  // namespace

double PassCost::seconds(std::size_t num_requests) const {
    std::size_t size = size_class(num_requests);
    for (std::size_t off = 0; off < std::max(by_size_.size(), size + 1); ++off) {  // the nearest class that is known
        if (size + off < by_size_.size() && by_size_[size + off] > 0.0) return by_size_[size + off];
        if (off <= size && size - off < by_size_.size() && by_size_[size - off] > 0.0) return by_size_[size - off];
    }
    return 0.0;
}

void PassCost::observe(double seconds, std::size_t num_requests) {
    std::size_t size = size_class(num_requests);
    if (by_size_.size() <= size) by_size_.resize(size + 1, 0.0);
    double& known = by_size_[size];
    known = known == 0.0 ? seconds : known + kPassRate * (std::min(seconds, kMostOutlier * known) - known);
}

DraftingCost::Parts DraftingCost::features(const DraftedStep& drafted) {
    return {1.0, std::pow(static_cast<double>(drafted.num_requests), kExponent), drafted.rows};
}

double DraftingCost::of_parts(const Parts& features) const {
    double seconds = 0.0;
    for (int i = 0; i < kNumParts; ++i) seconds += parts_[i] * features[i];
    return seconds;
}

double DraftingCost::seconds(const DraftedStep& drafted) const {
    if (drafted.num_requests == 0) return 0.0;
    double further = std::max(0.0, drafted.depth - 1.0);
    return of_parts(features(drafted)) + further * passes_.seconds(drafted.num_requests);
}

void DraftingCost::begin(double seconds, const Parts& features) {
    for (int i = 0; i < kNumParts; ++i) {
        parts_[i] = features[i] > 0.0 ? kFirst[i] * seconds / features[i] : 0.0;
        uncertainty_[i][i] = largest_variance(i, seconds, features[i]);
    }
    noise_ = kFirstNoise * kFirstNoise * seconds * seconds;
    is_known_ = true;
}

// Costs change with the machine's load and with the length of the context. `seconds`: what is expected now.
void DraftingCost::drift(double seconds, const Parts& features) {
    for (int i = 0; i < kNumParts; ++i) {
        double largest = largest_variance(i, seconds, features[i]);
        uncertainty_[i][i] += kDrift * kDrift * largest;
        double excess = uncertainty_[i][i] / largest;
        if (excess <= 1.0) continue;
        for (int j = 0; j < kNumParts; ++j) {
            uncertainty_[i][j] /= std::sqrt(excess);
            uncertainty_[j][i] /= std::sqrt(excess);
        }
    }
}

void DraftingCost::observe(double seconds, const DraftedStep& drafted, double pass_seconds) {
    if (pass_seconds > 0.0) passes_.observe(pass_seconds, drafted.num_requests);
    double first = seconds - pass_seconds * std::max(0.0, drafted.depth - 1.0);
    if (drafted.num_requests == 0 || first <= 0.0) return;
    Parts x = features(drafted);
    if (!is_known_) return begin(first, x);
    double expected = std::max(of_parts(x), kLeast);
    double error = std::min(first, kMostOutlier * expected) - expected;
    drift(expected, x);
    Parts shared{};  // covariance of the parts with the measurement
    double variance = noise_;
    for (int i = 0; i < kNumParts; ++i) {
        for (int j = 0; j < kNumParts; ++j) shared[i] += uncertainty_[i][j] * x[j];
        variance += shared[i] * x[i];
    }
    for (int i = 0; i < kNumParts; ++i) {
        parts_[i] = std::max(0.0, parts_[i] + shared[i] / variance * error);
        for (int j = 0; j < kNumParts; ++j) uncertainty_[i][j] -= shared[i] * shared[j] / variance;
    }
    noise_ += kNoiseRate * (error * error - noise_);
}

}  // namespace adaptive
