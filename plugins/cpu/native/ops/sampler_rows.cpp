// What `Sampler` does with one row, in one thread: edits, cut-offs and log-probabilities.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numeric>

#include "ops/sampler.hpp"

namespace specserve {

namespace {
// How far below the best token a row's candidates are looked for, one after the other: mostly few tokens are near it.
constexpr float kDepths[] = {6.0f, 12.0f, 24.0f, INFINITY};

float lowest_of(float top, float depth) { return depth == INFINITY ? -FLT_MAX : top - depth; }
uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 30) * kFirstMultiplier;
    x = (x ^ x >> 27) * kSecondMultiplier;
    return x ^ x >> 31;
}

// The core's seeds.row_key.
uint64_t row_key(uint64_t seed, int64_t index) {
    return mixed(mixed(seed) + (static_cast<uint64_t>(index) + 1) * kGamma);
}

}  // namespace

void Sampler::noise(uint64_t seed, int64_t index, int size, float* out) const {
    table_.noise(row_key(seed, index), size, out);
}

Sampler::Ready Sampler::prepare(Logits logits, const TargetRows& wanted, const TargetRow& row, Scratch& scratch) const {
    const float* at = row.given ? row.given : logits.row(row.row);
    Ready ready{at, {row_key(row.seed, row.index), row.temperature, -INFINITY}, row.temperature > 0.0f};
    if (!row.num_edits && !row.cuts()) return ready;
    scratch.fit(logits.size);
    float* own = scratch.own.data();
    ready.at = own;
    if (row.num_edits) {
        std::copy(at, at + logits.size, own);
        for (size_t e = 0; e < row.num_edits; ++e) apply(wanted, wanted.edits[row.first_edit + e], logits.size, own);
        at = own;
    }
    if (row.cuts()) {
        table_.divide(at, logits.size, row.temperature, own);
        ready.noise.temperature = 1.0f;
        ready.noise.least = least_kept(row, logits.size, table_.peak(own, 0, logits.size).value, scratch);
    }
    return ready;
}

// As the core's edits.TorchRow: the same operations in float32, in the same order.
void Sampler::apply(const TargetRows& wanted, const Edit& edit, int size, float* x) const {
    const int64_t* ids = wanted.ids.data() + edit.first_id;
    const float* values = wanted.values.data() + edit.first_value;
    switch (edit.kind) {
        case Edit::penalize:
            for (int i = 0; i < edit.count; ++i) {
                float each = x[ids[i]];
                if (edit.repetition != 1.0f) each = each > 0.0f ? each / edit.repetition : each * edit.repetition;
                each = each - edit.frequency * values[i];
                x[ids[i]] = each - edit.presence * (values[i] > 0.0f ? 1.0f : 0.0f);
            }
            break;
        case Edit::shift:
            for (int i = 0; i < edit.count; ++i) x[ids[i]] += values[i];
            break;
        case Edit::keep_only: {
            std::vector<float> kept(static_cast<size_t>(edit.count));
            for (int i = 0; i < edit.count; ++i) kept[static_cast<size_t>(i)] = x[ids[i]];
            std::fill(x, x + size, -INFINITY);
            for (int i = 0; i < edit.count; ++i) x[ids[i]] = kept[static_cast<size_t>(i)];
            break;
        }
        case Edit::forbid:
            for (int i = 0; i < edit.count; ++i) x[ids[i]] = -INFINITY;
            break;
    }
}

// The threshold of top-k, then top-p over what that left, then min-p: the core's cutoffs.apply_cutoffs.
// scratch.own: the row after temperature; top: its best logit.
float Sampler::least_kept(const TargetRow& row, int size, float top, Scratch& scratch) const {
    if (!std::isfinite(top)) return top;
    double least = -INFINITY;
    bool few = row.top_k > 0 && row.top_k < size;
    if (few) least = top_k_least(row.top_k, size, top, scratch);
    if (row.top_p < 1.0) {
        float* values = scratch.values.data();
        float* weights = scratch.weights.data();
        int count;
        double target;
        if (few && least > -INFINITY) {
            // exactly the k best: of those that tie with the last, as many as fit
            float last = static_cast<float>(least);
            count = table_.keep_least(scratch.own.data(), size, std::nextafter(last, INFINITY), values);
            while (count < row.top_k) values[count++] = last;
            target = row.top_p * table_.mass(values, count, top);
            table_.weigh(values, count, top, weights);
        } else {
            target = row.top_p * table_.mass(scratch.own.data(), size, top);
            count = nucleus_candidates(size, top, target, scratch);
        }
        least = std::max(least, static_cast<double>(table_.select(values, weights, count, target)));
    }
    if (row.min_p > 0.0) least = std::max(least, static_cast<double>(top) + std::log(row.min_p));
    return static_cast<float>(least);
}

// The count-th largest of scratch.own, duplicates counted; -inf where fewer are finite.
float Sampler::top_k_least(int64_t count, int size, float top, Scratch& scratch) const {
    for (float depth : kDepths) {
        int found = table_.keep_least(scratch.own.data(), size, lowest_of(top, depth), scratch.values.data());
        if (found >= count) return table_.select(scratch.values.data(), nullptr, found, static_cast<double>(count));
    }
    return -INFINITY;
}

// Into values and weights: the tokens nearest to the best one that hold the mass `target`, and more.
int Sampler::nucleus_candidates(int size, float top, double target, Scratch& scratch) const {
    int found = 0;
    for (float depth : kDepths) {
        found = table_.keep_least(scratch.own.data(), size, lowest_of(top, depth), scratch.values.data());
        table_.weigh(scratch.values.data(), found, top, scratch.weights.data());
        if (table_.mass(scratch.values.data(), found, top) >= target) break;
    }
    return found;
}

// logprob = logit - log of the sum of all e^logit, in float64, rounded once.
RowLogprobs Sampler::logprobs_of(const float* x, int size, int64_t token, int64_t count, Scratch& scratch) const {
    scratch.fit(size);
    float top = table_.peak(x, 0, size).value;
    if (!std::isfinite(top)) return {NAN, {}, {}};  // a broken row has no distribution
    double whole = static_cast<double>(top) + std::log(table_.mass(x, size, top));
    auto logprob = [&](int64_t t) {
        return std::isnan(x[t]) ? -INFINITY : static_cast<float>(static_cast<double>(x[t]) - whole);
    };
    RowLogprobs row{logprob(token), {}, {}};
    count = std::min<int64_t>(count, size);
    if (count < 1) return row;
    float last = -INFINITY;
    for (float depth : kDepths) {
        int found = table_.keep_least(x, size, lowest_of(top, depth), scratch.values.data());
        if (found < count) continue;
        last = table_.select(scratch.values.data(), nullptr, found, static_cast<double>(count));
        break;
    }
    // logits that differ may have the same log-probability, and then the lower id goes first
    double rounding = std::fabs(static_cast<double>(last) - whole) * 0x1p-22;
    float least =
        last == -INFINITY ? last : std::nextafter(static_cast<float>(static_cast<double>(last) - rounding), -INFINITY);
    int found = size;
    if (least > -INFINITY)
        found = table_.find_least(x, size, least, scratch.ids.data());
    else  // a NaN is among them too, which no comparison finds
        std::iota(scratch.ids.begin(), scratch.ids.begin() + size, 0);
    count = std::min<int64_t>(count, found);
    auto before = [&](int32_t a, int32_t b) { return logprob(a) > logprob(b) || (logprob(a) == logprob(b) && a < b); };
    std::partial_sort(scratch.ids.begin(), scratch.ids.begin() + count, scratch.ids.begin() + found, before);
    row.top_ids.assign(scratch.ids.begin(), scratch.ids.begin() + count);
    for (int32_t id : row.top_ids) row.top_logprobs.push_back(logprob(id));
    return row;
}

std::vector<RowLogprobs> Sampler::logprobs(Logits logits, const int64_t* tokens, const int64_t* counts) {
    std::lock_guard<std::mutex> mine(mutex_);
    std::vector<RowLogprobs> found(static_cast<size_t>(logits.count));
    std::vector<Scratch>& scratch = scratch_for(static_cast<size_t>(pool_->size()));
    auto row = [&](int r, int thread) {
        found[static_cast<size_t>(r)] =
            logprobs_of(logits.row(r), logits.size, tokens[r], counts[r], scratch[static_cast<size_t>(thread)]);
    };
    if (logits.count == 1 || pool_->size() == 1) {
        for (int r = 0; r < logits.count; ++r) row(r, 0);
        return found;
    }
    pool_->run(1, [&](Pool::Crew& crew) { crew.share(logits.count, [&](int r) { row(r, crew.thread()); }); });
    return found;
}

}  // namespace specserve
