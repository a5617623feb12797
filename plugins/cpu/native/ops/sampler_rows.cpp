// What `Sampler` does with one row, in one thread: edits, cutoffs and log-probabilities.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/sampler.hpp"

namespace specserve {

namespace {
// A search for the best tokens first considers logits within 6 of the maximum, then within 12, ...: usually few.
constexpr float kSearchDepths[] = {6.0f, 12.0f, 24.0f, INFINITY};

// Words of 32 tokens: most are all ones or all zeros.
void keep_bits(const uint32_t* bits, int size, float* x) {
    for (int begin = 0; begin < size; begin += 32) {
        uint32_t word = bits[begin / 32];
        int end = std::min(begin + 32, size);
        if (word == UINT32_MAX) continue;
        if (word == 0)
            std::fill(x + begin, x + end, -INFINITY);
        else
            for (int i = begin; i < end; ++i)
                if (!(word >> (i - begin) & 1)) x[i] = -INFINITY;
    }
}

float search_threshold(float row_max, float depth) {
    return depth == INFINITY ? std::numeric_limits<float>::lowest() : row_max - depth;
}

uint64_t splitmix64_finalize(uint64_t x) {
    x = (x ^ x >> 30) * kFirstMultiplier;
    x = (x ^ x >> 27) * kSecondMultiplier;
    return x ^ x >> 31;
}

// The core's seeds.row_key.
uint64_t row_key(uint64_t seed, int64_t index) {
    return splitmix64_finalize(splitmix64_finalize(seed) + (static_cast<uint64_t>(index) + 1) * kGamma);
}

}  // namespace

void Sampler::gumbel_noise(uint64_t seed, int64_t index, int size, float* out) const {
    table_.gumbel_noise(row_key(seed, index), size, out);
}

Sampler::PreparedRow Sampler::prepare_row(Logits logits, const TargetRows& targets, const TargetRow& row,
                                          Workspace& workspace) const {
    const float* x = row.replacement ? row.replacement : logits.row(row.row);
    PreparedRow prepared{x, {row_key(row.seed, row.index), row.temperature, -INFINITY}, row.temperature > 0.0f};
    if (!row.num_edits && !row.has_cutoffs()) return prepared;
    workspace.reserve(logits.size);
    float* copy = workspace.logits.data();
    prepared.logits = copy;
    if (row.num_edits) {
        std::copy(x, x + logits.size, copy);
        for (size_t e = 0; e < row.num_edits; ++e)
            apply_edit(targets, targets.edits[row.edits_offset + e], logits.size, copy);
        x = copy;
    }
    if (row.has_cutoffs()) {
        table_.divide(x, logits.size, row.temperature, copy);
        prepared.gumbel.temperature = 1.0f;
        prepared.gumbel.cutoff = cutoff(row, logits.size, table_.argmax(copy, 0, logits.size).score, workspace);
    }
    return prepared;
}

// The same float32 operations in the same order as the core's edits.TorchRow.
void Sampler::apply_edit(const TargetRows& targets, const LogitEdit& edit, int size, float* x) const {
    const int64_t* ids = targets.ids.data() + edit.ids_offset;
    const float* values = targets.values.data() + edit.values_offset;
    switch (edit.kind) {
        case LogitEdit::penalize:
            for (int i = 0; i < edit.count; ++i) {
                float logit = x[ids[i]];
                if (edit.repetition != 1.0f) logit = logit > 0.0f ? logit / edit.repetition : logit * edit.repetition;
                logit = logit - edit.frequency * values[i];
                x[ids[i]] = logit - edit.presence * (values[i] > 0.0f ? 1.0f : 0.0f);
            }
            break;
        case LogitEdit::shift:
            for (int i = 0; i < edit.count; ++i) x[ids[i]] += values[i];
            break;
        case LogitEdit::keep_only: {
            std::vector<float> kept(static_cast<size_t>(edit.count));
            for (int i = 0; i < edit.count; ++i) kept[static_cast<size_t>(i)] = x[ids[i]];
            std::fill(x, x + size, -INFINITY);
            for (int i = 0; i < edit.count; ++i) x[ids[i]] = kept[static_cast<size_t>(i)];
            break;
        }
        case LogitEdit::forbid:
            for (int i = 0; i < edit.count; ++i) x[ids[i]] = -INFINITY;
            break;
        case LogitEdit::keep_bits: keep_bits(targets.bits.data() + edit.ids_offset, size, x); break;
    }
}

// `best`: the largest score after the edits. A row that had no token before them lost none.
bool Sampler::lost_all_tokens(Logits logits, const TargetRow& row, float best) const {
    if (best != -INFINITY || (!row.num_edits && !row.replacement)) return false;
    return table_.argmax(logits.row(row.row), 0, logits.size).score != -INFINITY;
}

// The smallest logit that stays after top-k, then top-p over what top-k left, then min-p: the core's
// cutoffs.apply_cutoffs. workspace.logits: the row after temperature.
float Sampler::cutoff(const TargetRow& row, int size, float row_max, Workspace& workspace) const {
    if (!std::isfinite(row_max)) return row_max;
    double threshold = -INFINITY;
    bool has_top_k = row.top_k > 0 && row.top_k < size;
    if (has_top_k) threshold = top_k_threshold(row.top_k, size, row_max, workspace);
    if (row.top_p < 1.0) {
        const float* logits = workspace.logits.data();
        float* values = workspace.values.data();
        float* weights = workspace.weights.data();
        int count;
        double target;
        if (has_top_k && threshold > -INFINITY) {
            // exactly k values: of those that tie with the k-th, as many as fit
            float kth = static_cast<float>(threshold);
            count = table_.filter_at_least(logits, size, std::nextafter(kth, INFINITY), values);
            while (count < row.top_k) values[count++] = kth;
            target = row.top_p * table_.sum_exp(values, count, row_max);
            table_.exp_shifted(values, count, row_max, weights);
        } else {
            target = row.top_p * table_.sum_exp(logits, size, row_max);
            count = top_p_candidates(size, row_max, target, workspace);
        }
        threshold = std::max(threshold, static_cast<double>(table_.select_threshold(values, weights, count, target)));
    }
    if (row.min_p > 0.0) threshold = std::max(threshold, static_cast<double>(row_max) + std::log(row.min_p));
    return static_cast<float>(threshold);
}

// The k-th largest of workspace.logits, duplicates counted; -inf if fewer are finite.
float Sampler::top_k_threshold(int64_t k, int size, float row_max, Workspace& workspace) const {
    float* values = workspace.values.data();
    for (float depth : kSearchDepths) {
        int count = table_.filter_at_least(workspace.logits.data(), size, search_threshold(row_max, depth), values);
        if (count >= k) return table_.select_threshold(values, nullptr, count, static_cast<double>(k));
    }
    return -INFINITY;
}

// Into values and weights: all tokens down to some depth, so that their sum of exp is at least `target`.
int Sampler::top_p_candidates(int size, float row_max, double target, Workspace& workspace) const {
    int count = 0;
    for (float depth : kSearchDepths) {
        float* values = workspace.values.data();
        count = table_.filter_at_least(workspace.logits.data(), size, search_threshold(row_max, depth), values);
        table_.exp_shifted(values, count, row_max, workspace.weights.data());
        if (table_.sum_exp(values, count, row_max) >= target) break;
    }
    return count;
}

// logprob = logit - logsumexp, in float64, rounded once.
RowLogprobs Sampler::row_logprobs(const float* x, int size, int64_t token, int64_t count, Workspace& workspace) const {
    workspace.reserve(size);
    float row_max = table_.argmax(x, 0, size).score;
    if (!std::isfinite(row_max)) return {NAN, {}, {}};  // no distribution
    double logsumexp = static_cast<double>(row_max) + std::log(table_.sum_exp(x, size, row_max));
    auto logprob = [&](int64_t t) {
        return std::isnan(x[t]) ? -INFINITY : static_cast<float>(static_cast<double>(x[t]) - logsumexp);
    };
    RowLogprobs row{logprob(token), {}, {}};
    count = std::min<int64_t>(count, size);
    if (count < 1) return row;
    float kth = -INFINITY;
    for (float depth : kSearchDepths) {
        float* values = workspace.values.data();
        int found = table_.filter_at_least(x, size, search_threshold(row_max, depth), values);
        if (found < count) continue;
        kth = table_.select_threshold(values, nullptr, found, static_cast<double>(count));
        break;
    }
    // Different logits may round to the same log-probability; then the lower id comes first.
    double rounding = std::fabs(static_cast<double>(kth) - logsumexp) * 0x1p-22;
    float threshold =
        kth == -INFINITY ? kth : std::nextafter(static_cast<float>(static_cast<double>(kth) - rounding), -INFINITY);
    std::vector<int32_t>& ids = workspace.ids;
    int found = size;
    if (threshold > -INFINITY)
        found = table_.indices_at_least(x, size, threshold, ids.data());
    else  // all tokens, NaN too: no comparison finds those
        std::iota(ids.begin(), ids.begin() + size, 0);
    count = std::min<int64_t>(count, found);
    auto before = [&](int32_t a, int32_t b) { return logprob(a) > logprob(b) || (logprob(a) == logprob(b) && a < b); };
    std::partial_sort(ids.begin(), ids.begin() + count, ids.begin() + found, before);
    row.top_ids.assign(ids.begin(), ids.begin() + count);
    for (int32_t id : row.top_ids) row.top_logprobs.push_back(logprob(id));
    return row;
}

std::vector<RowLogprobs> Sampler::token_logprobs(Logits logits, const int64_t* tokens, const int64_t* counts) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<RowLogprobs> rows(static_cast<size_t>(logits.count));
    std::vector<Workspace>& by_thread = workspaces(static_cast<size_t>(pool_->size()));
    auto run_row = [&](int r, int thread) {
        rows[static_cast<size_t>(r)] =
            row_logprobs(logits.row(r), logits.size, tokens[r], counts[r], by_thread[static_cast<size_t>(thread)]);
    };
    if (logits.count == 1 || pool_->size() == 1) {
        for (int r = 0; r < logits.count; ++r) run_row(r, 0);
        return rows;
    }
    pool_->run(1, [&](ThreadPool::Team& team) {
        team.parallel_for(logits.count, [&](int r) { run_row(r, team.thread_index()); });
    });
    return rows;
}

}  // namespace specserve
