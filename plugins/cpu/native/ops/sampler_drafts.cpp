// Draft tokens: the best tokens of a draft model's rows, and their probabilities among the perturbed scores.
#include <algorithm>
#include <cmath>

#include "ops/sampler.hpp"

namespace specserve {

namespace {
// Tokens whose probability is below exp(-this) of the best one's are left out before the noise is added.
constexpr float kDraftDepth = 16.0f;
}  // namespace

// The scores that the target's token would be the argmax of, if these were its logits. NaN counts as -inf.
const float* Sampler::draft_scores(Logits logits, const TargetRows& targets, const TargetRow& row, const int64_t* ids,
                                   Workspace& workspace) const {
    PreparedRow prepared = prepare_row(logits, targets, row, workspace);
    if (!prepared.is_sampled) return prepared.logits;
    workspace.reserve(logits.size);
    GumbelParams params = prepared.gumbel;
    float lowest = table_.argmax(prepared.logits, 0, logits.size).score - kDraftDepth * params.temperature;
    params.cutoff = std::max(params.cutoff, lowest);
    table_.draft_scores(prepared.logits, ids, logits.size, params, workspace.values.data());
    return workspace.values.data();
}

void Sampler::choose_drafts(const float* scores, int size, const int64_t* ids, int count, Workspace& workspace,
                            DraftToken* out) const {
    ArgMax best = table_.argmax(scores, 0, size);
    std::fill(out, out + count, DraftToken{0, 0.0f});
    if (!std::isfinite(best.score)) return;  // no distribution
    double sum = table_.sum_exp(scores, size, best.score);
    auto token = [&](int i) {
        double probability = std::exp(static_cast<double>(scores[i]) - static_cast<double>(best.score)) / sum;
        return DraftToken{ids ? ids[i] : i, static_cast<float>(probability)};
    };
    out[0] = token(best.token);
    if (count == 1) return;
    workspace.reserve(size);
    std::vector<int32_t>& found = workspace.ids;
    int num_found = 0;
    for (float depth = 4.0f; num_found < count && depth <= 2 * kDraftDepth; depth *= 2)
        num_found = table_.indices_at_least(scores, size, best.score - depth, found.data());
    int num_best = std::min(count, num_found);
    std::partial_sort(found.begin(), found.begin() + num_best, found.begin() + num_found,
                      [&](int32_t a, int32_t b) { return scores[a] > scores[b] || (scores[a] == scores[b] && a < b); });
    for (int i = 0; i < num_best; ++i) out[i] = token(found[static_cast<size_t>(i)]);
}

std::vector<DraftToken> Sampler::draft_tokens(Logits logits, const TargetRows& targets, const int64_t* ids, int count) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Workspace>& by_thread = workspaces(static_cast<size_t>(pool_->size()));
    int rows = static_cast<int>(targets.rows.size());
    std::vector<DraftToken> tokens(static_cast<size_t>(rows) * static_cast<size_t>(count));
    auto run_row = [&](int r, int thread) {
        size_t i = static_cast<size_t>(r);
        Workspace& workspace = by_thread[static_cast<size_t>(thread)];
        const float* scores = draft_scores(logits, targets, targets.rows[i], ids, workspace);
        choose_drafts(scores, logits.size, ids, count, workspace, &tokens[i * static_cast<size_t>(count)]);
    };
    if (rows == 1 || pool_->size() == 1) {
        for (int r = 0; r < rows; ++r) run_row(r, 0);
        return tokens;
    }
    pool_->run(
        1, [&](ThreadPool::Team& team) { team.parallel_for(rows, [&](int r) { run_row(r, team.thread_index()); }); });
    return tokens;
}

}  // namespace specserve
