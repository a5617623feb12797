#include "stress/sampling_reference.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace specserve::reference {

namespace {

constexpr float kNegInf = -INFINITY;
constexpr double kSlack = 1e-5;  // added to top_p: far above the rounding error of the sums

// The smallest logit that stays of x, which has been divided by the temperature, if top_p were top_p + slack.
float cutoff(const std::vector<float>& x, const TargetRow& row, double slack) {
    std::vector<float> ranked = x;
    std::sort(ranked.begin(), ranked.end(), std::greater<>());
    float row_max = ranked[0];
    if (!std::isfinite(row_max)) return row_max;
    if (row.top_k > 0 && row.top_k < static_cast<int64_t>(ranked.size())) ranked.resize(static_cast<size_t>(row.top_k));
    double threshold = row.top_k > 0 ? ranked.back() : kNegInf;
    if (row.top_p < 1.0) {
        double total = 0, sum = 0;
        for (float logit : ranked) total += std::exp(double{logit} - row_max);
        size_t last = 0;
        for (; last < ranked.size(); ++last)
            if ((sum += std::exp(double{ranked[last]} - row_max)) >= (row.top_p + slack) * total) break;
        if (last < ranked.size()) threshold = std::max<double>(threshold, ranked[last]);
    }
    if (row.min_p > 0.0) threshold = std::max(threshold, row_max + std::log(row.min_p));
    return static_cast<float>(threshold);
}

}  // namespace

std::vector<float> replace_nan(std::vector<float> x) {
    for (float& logit : x)
        if (std::isnan(logit)) logit = kNegInf;
    return x;
}

int argmax(const std::vector<float>& x) { return static_cast<int>(std::max_element(x.begin(), x.end()) - x.begin()); }

std::vector<float> apply_edits(std::vector<float> x, const TargetRows& targets, const TargetRow& row) {
    for (size_t e = row.edits_offset; e < row.edits_offset + row.num_edits; ++e) {
        const LogitEdit& edit = targets.edits[e];
        std::vector<float> before = x;
        for (size_t i = 0; edit.kind == LogitEdit::keep_bits && i < x.size(); ++i)
            if (!(targets.bits[edit.ids_offset + i / 32] & 1u << i % 32)) x[i] = kNegInf;
        if (edit.kind == LogitEdit::keep_bits) continue;
        if (edit.kind == LogitEdit::keep_only) std::fill(x.begin(), x.end(), kNegInf);
        for (size_t i = 0; i < static_cast<size_t>(edit.count); ++i) {
            size_t token = static_cast<size_t>(targets.ids[edit.ids_offset + i]);
            float& logit = x[token];
            if (edit.kind == LogitEdit::keep_only) logit = before[token];
            if (edit.kind == LogitEdit::forbid) logit = kNegInf;
            if (edit.kind == LogitEdit::shift) logit += targets.values[edit.values_offset + i];
            if (edit.kind != LogitEdit::penalize) continue;
            float count = targets.values[edit.values_offset + i];
            if (edit.repetition != 1.0f) logit = logit > 0.0f ? logit / edit.repetition : logit * edit.repetition;
            logit -= edit.frequency * count;
            if (count > 0.0f) logit -= edit.presence;
        }
    }
    return x;
}

bool lost_all_tokens(const std::vector<float>& before, const std::vector<float>& after, const TargetRow& row) {
    auto has_token = [](const std::vector<float>& x) {
        return std::any_of(x.begin(), x.end(), [](float logit) { return logit > kNegInf; });
    };
    return (row.num_edits || row.replacement) && has_token(before) && !has_token(after);
}

std::vector<int> valid_tokens(const std::vector<float>& x, const TargetRow& row, const std::vector<float>& noise) {
    std::vector<float> scaled = replace_nan(x);
    if (row.temperature == 0.0f) return {argmax(scaled)};
    for (float& logit : scaled) logit /= row.temperature;
    std::vector<int> tokens;
    for (double slack : {-kSlack, kSlack}) {
        float threshold = row.has_cutoffs() ? cutoff(scaled, row, slack) : kNegInf;
        std::vector<float> scores(scaled.size());
        for (size_t i = 0; i < scaled.size(); ++i) scores[i] = scaled[i] >= threshold ? scaled[i] + noise[i] : kNegInf;
        tokens.push_back(argmax(scores));
    }
    return tokens;
}

}  // namespace specserve::reference
