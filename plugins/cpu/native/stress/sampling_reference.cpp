#include "stress/sampling_reference.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace specserve::plain {

namespace {

constexpr float kNone = -INFINITY;
constexpr double kSlack = 1e-5;  // of the mass in the nucleus: far more than its sums can round away

// The smallest value that stays of x, which has been divided by the temperature; `slack` moves the border of the
// nucleus.
float least_kept(const std::vector<float>& x, const TargetRow& row, double slack) {
    std::vector<float> ranked = x;
    std::sort(ranked.begin(), ranked.end(), std::greater<>());
    float top = ranked[0];
    if (!std::isfinite(top)) return top;
    if (row.top_k > 0 && row.top_k < static_cast<int64_t>(ranked.size())) ranked.resize(static_cast<size_t>(row.top_k));
    double least = row.top_k > 0 ? ranked.back() : kNone;
    if (row.top_p < 1.0) {
        double whole = 0, sum = 0;
        for (float each : ranked) whole += std::exp(double{each} - top);
        size_t last = 0;
        for (; last < ranked.size(); ++last)
            if ((sum += std::exp(double{ranked[last]} - top)) >= (row.top_p + slack) * whole) break;
        if (last < ranked.size()) least = std::max<double>(least, ranked[last]);
    }
    if (row.min_p > 0.0) least = std::max(least, top + std::log(row.min_p));
    return static_cast<float>(least);
}

}  // namespace

std::vector<float> without_nan(std::vector<float> x) {
    for (float& each : x)
        if (std::isnan(each)) each = kNone;
    return x;
}

int best(const std::vector<float>& x) { return static_cast<int>(std::max_element(x.begin(), x.end()) - x.begin()); }

std::vector<float> edited(std::vector<float> x, const TargetRows& wanted, const TargetRow& row) {
    for (size_t e = row.first_edit; e < row.first_edit + row.num_edits; ++e) {
        const Edit& edit = wanted.edits[e];
        std::vector<float> before = x;
        if (edit.kind == Edit::keep_only) std::fill(x.begin(), x.end(), kNone);
        for (size_t i = 0; i < static_cast<size_t>(edit.count); ++i) {
            size_t token = static_cast<size_t>(wanted.ids[edit.first_id + i]);
            float& each = x[token];
            if (edit.kind == Edit::keep_only) each = before[token];
            if (edit.kind == Edit::forbid) each = kNone;
            if (edit.kind == Edit::shift) each += wanted.values[edit.first_value + i];
            if (edit.kind != Edit::penalize) continue;
            float count = wanted.values[edit.first_value + i];
            if (edit.repetition != 1.0f) each = each > 0.0f ? each / edit.repetition : each * edit.repetition;
            each -= edit.frequency * count;
            if (count > 0.0f) each -= edit.presence;
        }
    }
    return x;
}

std::vector<int> tokens(const std::vector<float>& x, const TargetRow& row, const std::vector<float>& noise) {
    std::vector<float> warm = without_nan(x);
    if (row.temperature == 0.0f) return {best(warm)};
    for (float& each : warm) each /= row.temperature;
    std::vector<int> found;
    for (double slack : {-kSlack, kSlack}) {
        float least = row.cuts() ? least_kept(warm, row, slack) : kNone;
        std::vector<float> scores(warm.size());
        for (size_t i = 0; i < warm.size(); ++i) scores[i] = warm[i] >= least ? warm[i] + noise[i] : kNone;
        found.push_back(best(scores));
    }
    return found;
}

}  // namespace specserve::plain
