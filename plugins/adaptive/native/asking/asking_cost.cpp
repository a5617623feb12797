#include "asking/asking_cost.hpp"

#include <algorithm>
#include <cmath>

namespace adaptive {

namespace {

constexpr double kExponent = 0.75;
// Of the first answer's time: what of it each part is taken to be, and how far off that may be.
constexpr std::array<double, 4> kFirst = {0.3, 0.6, 0.1, 0.0}, kFirstDeviations = {0.3, 0.5, 0.15, 0.02};
constexpr double kFirstNoise = 0.2, kNoiseRate = 0.05, kDrift = 0.02;  // deviations; per measurement

}  // namespace

AskingCost::Parts AskingCost::features(const Question& question) {
    return {1.0, std::pow(static_cast<double>(question.num_requests), kExponent), question.depth, question.rows};
}

double AskingCost::seconds(const Question& question) const {
    if (question.num_requests == 0) return 0.0;
    Parts x = features(question);
    double seconds = 0.0;
    for (int i = 0; i < kNumParts; ++i) seconds += parts_[i] * x[i];
    return seconds;
}

void AskingCost::begin(double seconds, const Parts& features) {
    parts_[kDepth] = kFirst[kDepth] * seconds;
    double rest = std::max(0.0, seconds - parts_[kDepth] * features[kDepth]) / (kFirst[kFixed] + kFirst[kRequests]);
    for (int i : {kFixed, kRequests}) parts_[i] = kFirst[i] * rest / features[i];
    for (int i = 0; i < kNumParts; ++i) {
        double deviation = kFirstDeviations[i] * seconds / (i == kRequests ? features[i] : 1.0);
        uncertainty_[i][i] = first_uncertainty_[i] = deviation * deviation;
    }
    noise_ = kFirstNoise * kFirstNoise * seconds * seconds;
    is_known_ = true;
}

// Costs change with the machine's load and with the length of the context.
void AskingCost::drift() {
    for (int i = 0; i < kNumParts; ++i) {
        uncertainty_[i][i] += kDrift * kDrift * first_uncertainty_[i];
        double excess = uncertainty_[i][i] / first_uncertainty_[i];
        if (excess <= 1.0) continue;
        for (int j = 0; j < kNumParts; ++j) {
            uncertainty_[i][j] /= std::sqrt(excess);
            uncertainty_[j][i] /= std::sqrt(excess);
        }
    }
}

void AskingCost::observe(double seconds, const Question& question) {
    if (question.num_requests == 0 || seconds <= 0.0) return;
    Parts x = features(question);
    if (!is_known_) return begin(seconds, x);
    double expected = this->seconds(question);
    double error = std::min(seconds, 2.0 * expected) - expected;
    drift();
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
