// What the planner decided and what came of it, in numbers that only grow but for the recent calibration.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace adaptive {

// Why a request verified what it did in a step.
enum class Reason { kVerified, kDoesNotPay, kBudget, kMeasured, kNoDraft, kDraftedRarely, kNotWanted };
constexpr int kNumReasons = 7;
constexpr const char* kReasonNames[kNumReasons] = {"verified", "does not pay",   "budget",    "plain step measured",
                                                   "no draft", "drafted rarely", "not wanted"};

struct RequestStats {
    std::array<int64_t, kNumReasons> steps{};
    double predicted = 0.0;  // accepted draft tokens
    int64_t accepted = 0, verified = 0;
};

// Predicted against observed acceptance of verified draft tokens, by predicted survival. Recent ones count most.
class CalibrationError {
   public:
    void add(double predicted, bool accepted) {
        Bin& bin = bins_[std::min(static_cast<int>(predicted * kBins), kBins - 1)];
        bin.predicted = bin.predicted * kDecay + predicted;
        bin.accepted = bin.accepted * kDecay + (accepted ? 1.0 : 0.0);
        bin.count = bin.count * kDecay + 1.0;
    }

    // The mean over draft tokens of how far their bin's prediction is off.
    double value() const {
        double off = 0.0, count = 0.0;
        for (const Bin& bin : bins_) {
            off += std::abs(bin.predicted - bin.accepted);
            count += bin.count;
        }
        return count > 0.0 ? off / count : 0.0;
    }

   private:
    static constexpr int kBins = 5;
    static constexpr double kDecay = 0.998;
    struct Bin {
        double predicted = 0.0, accepted = 0.0, count = 0.0;
    };
    std::array<Bin, kBins> bins_{};
};

struct Stats {
    std::array<int64_t, kNumReasons> steps{};  // of all requests
    std::vector<int64_t> widths;               // [n]: how often a request verified n draft tokens
    double predicted = 0.0;
    int64_t accepted = 0, verified = 0;
    CalibrationError calibration;
};

}  // namespace adaptive
