// The sampler: random rows with random parameters, alone and in a batch, against the reference.
#include "ops/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stress/sampling_reference.hpp"
#include "stress/stress.hpp"

namespace specserve {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

bool chance(Random& random, int percent) { return between(random, 1, 100) <= percent; }

// One row: usually finite, with ties; sometimes with infinities or NaN.
std::vector<float> random_row(Random& random, int size) {
    std::vector<float> x = random_numbers<float>(random, static_cast<size_t>(size));
    int kind = between(random, 0, 9);
    auto replace = [&](int percent, float value) {
        for (float& logit : x)
            if (chance(random, percent)) logit = value;
    };
    for (float& logit : x) logit *= kind == 0 ? 1e37f : 4.0f;
    if (kind == 1) replace(100, -kInfinity);
    if (kind == 2) replace(100, kNan);
    if (kind == 3) replace(20, kNan);
    if (kind == 4) replace(97, -kInfinity);
    if (kind == 5) replace(2, kInfinity);
    if (kind == 6) replace(60, 1.5f);
    if (kind == 7)
        for (float& logit : x) logit = std::round(logit);
    return x;
}

// Logits in a buffer without slack after the last row.
struct Matrix {
    Matrix(Random& random, int count, int size) : stride(size + between(random, 0, 3)), count(count), size(size) {
        memory.assign(static_cast<size_t>((count - 1) * stride + size), kInfinity);
        for (int r = 0; r < count; ++r) {
            std::vector<float> x = random_row(random, size);
            std::copy(x.begin(), x.end(), memory.begin() + r * stride);
        }
    }
    Logits logits() const { return {memory.data(), stride, count, size}; }
    std::vector<float> row(int64_t r) const {
        return {memory.begin() + r * stride, memory.begin() + r * stride + size};
    }

    ptrdiff_t stride;
    int count, size;
    std::vector<float> memory;
};

// Adds an edit of random tokens, some of them twice, to the last row.
void add_edit(TargetRows& targets, Random& random, int size) {
    int count = between(random, 0, 8);
    if (chance(random, 20)) {
        int words = (size + 31) / 32;
        targets.edits.push_back({LogitEdit::keep_bits, targets.bits.size(), 0, words});
        for (int i = 0; i < words; ++i)
            targets.bits.push_back(chance(random, 50) ? (chance(random, 50) ? UINT32_MAX : 0) : random());
        ++targets.rows.back().num_edits;
        return;
    }
    LogitEdit edit{static_cast<LogitEdit::Kind>(between(random, 0, 3)), targets.ids.size(), targets.values.size(),
                   count};
    if (edit.kind == LogitEdit::penalize) {
        edit.repetition = chance(random, 30) ? 1.0f : 1.3f;
        edit.presence = 0.5f * static_cast<float>(between(random, -1, 2));
        edit.frequency = 0.25f * static_cast<float>(between(random, -1, 2));
    }
    for (int i = 0; i < count; ++i) {
        bool repeat = i && chance(random, 30);
        targets.ids.push_back(repeat ? targets.ids.back() : between(random, 0, size - 1));
        if (edit.kind == LogitEdit::penalize || edit.kind == LogitEdit::shift)
            targets.values.push_back(static_cast<float>(between(random, 0, 3)));
    }
    ++targets.rows.back().num_edits;
    targets.edits.push_back(edit);
}

// `count` random targets; a row of the matrix may be in several, with different edits.
TargetRows random_targets(Random& random, const Matrix& matrix, int count, const std::vector<float>& replacement) {
    TargetRows targets;
    for (int i = 0; i < count; ++i) {
        TargetRow row{between(random, 0, matrix.count - 1),
                      uint64_t{random()} << 32 | random(),
                      between(random, 0, 1000),
                      0.0f,
                      0,
                      1.0,
                      0.0};
        if (chance(random, 80)) row.temperature = 0.1f * static_cast<float>(between(random, 1, 15));
        if (chance(random, 40))
            row.top_k = chance(random, 50) ? between(random, 1, 3) : between(random, 1, matrix.size + 9);
        if (chance(random, 40)) row.top_p = between(random, 1, 999) / 1000.0;
        if (chance(random, 30)) row.min_p = between(random, 1, 99) / 100.0;
        if (chance(random, 10)) row.replacement = replacement.data();
        row.edits_offset = targets.edits.size();
        targets.rows.push_back(row);
        if (chance(random, 50))
            for (int edits = between(random, 1, 3); edits; --edits) add_edit(targets, random, matrix.size);
    }
    return targets;
}

// Only row r.
TargetRows single_target(const TargetRows& targets, size_t r) {
    TargetRows single = targets;
    single.rows = {targets.rows[r]};
    return single;
}

void check_targets(const std::string& isa, Sampler& sampler, Sampler& serial, Random& random, const Matrix& matrix) {
    std::vector<float> replacement = random_row(random, matrix.size), noise(static_cast<size_t>(matrix.size));
    TargetRows targets = random_targets(random, matrix, matrix.count, replacement);
    std::vector<int> tokens = sampler.target_tokens(matrix.logits(), targets);
    require(tokens.size() == targets.rows.size(), isa + ": rows without a token");
    record(tokens.data(), tokens.size());
    for (size_t r = 0; r < tokens.size(); ++r) {
        const TargetRow& row = targets.rows[r];
        std::vector<float> x =
            reference::apply_edits(row.replacement ? replacement : matrix.row(row.row), targets, row);
        sampler.gumbel_noise(row.seed, row.index, matrix.size, noise.data());
        std::vector<int> valid = reference::valid_tokens(x, row, noise);
        if (reference::lost_all_tokens(matrix.row(row.row), x, row)) valid = {kNoToken};
        require(std::find(valid.begin(), valid.end(), tokens[r]) != valid.end(), isa + ": a token is wrong");
        if (chance(random, 20))
            require(serial.target_tokens(matrix.logits(), single_target(targets, r))[0] == tokens[r],
                    isa + ": a token depends on the other rows");
    }
}

// token, count: what was requested
void check_row_logprobs(const std::string& isa, const RowLogprobs& result, const std::vector<float>& x, int64_t token,
                        int64_t count) {
    float row_max = x[static_cast<size_t>(reference::argmax(x))];
    if (!std::isfinite(row_max))
        return require(std::isnan(result.logprob) && result.top_ids.empty(),
                       isa + ": a row without a distribution has log-probabilities");
    double sum = 0;
    for (float logit : x) sum += std::exp(double{logit} - row_max);
    double logsumexp = row_max + std::log(sum);
    auto is_near = [&](float got, size_t t) {
        double exact = x[t] - logsumexp;
        return std::fabs(got - exact) <= 1e-5 * (1 + std::fabs(exact)) || (got == x[t] && !std::isfinite(got));
    };
    require(is_near(result.logprob, static_cast<size_t>(token)), isa + ": a log-probability is wrong");
    record(&result.logprob, 1);
    size_t num_top = static_cast<size_t>(std::min<int64_t>(count, static_cast<int64_t>(x.size())));
    require(result.top_ids.size() <= num_top && result.top_logprobs.size() == result.top_ids.size(),
            isa + ": too many tokens");
    std::vector<float> ranked = x;
    std::sort(ranked.begin(), ranked.end(), std::greater<>());
    for (size_t i = 0; i < num_top; ++i) {
        if (i >= result.top_ids.size()) {  // only NaN may be missing
            require(ranked[i] == -kInfinity, isa + ": a token is missing");
            continue;
        }
        require(is_near(result.top_logprobs[i], static_cast<size_t>(result.top_ids[i])),
                isa + ": a token's log-probability is wrong");
        float previous = i ? result.top_logprobs[i - 1] : kInfinity;
        require(result.top_logprobs[i] < previous ||
                    (result.top_logprobs[i] == previous && result.top_ids[i] > result.top_ids[i - 1]),
                isa + ": tokens are not in order");
        double rounding = 1e-6 * (std::fabs(ranked[i]) + std::fabs(logsumexp));  // logits closer than this may tie
        require(x[static_cast<size_t>(result.top_ids[i])] >= ranked[i] - rounding || ranked[i] == -kInfinity,
                isa + ": a better token is missing");
    }
}

void check_logprobs(const std::string& isa, Sampler& sampler, Random& random, const Matrix& matrix) {
    std::vector<int64_t> tokens, counts;
    for (int r = 0; r < matrix.count; ++r) {
        tokens.push_back(between(random, 0, matrix.size - 1));
        counts.push_back(chance(random, 10) ? matrix.size + 5 : between(random, 0, 20));
    }
    std::vector<RowLogprobs> results = sampler.token_logprobs(matrix.logits(), tokens.data(), counts.data());
    for (size_t r = 0; r < results.size(); ++r)
        check_row_logprobs(isa, results[r], reference::replace_nan(matrix.row(static_cast<int64_t>(r))), tokens[r],
                           counts[r]);
}

// Small and large vocabularies, up to those where threads share a row; few and many rows.
Matrix random_matrix(Random& random) {
    switch (between(random, 0, 9)) {
        case 0: return Matrix(random, between(random, 1, 9), 1);
        case 1: return Matrix(random, between(random, 1, 9), between(random, 2, 17));
        case 2: return Matrix(random, between(random, 1, 3), between(random, 8193, 17000));
        case 3: return Matrix(random, between(random, 30, 90), between(random, 560, 600));
        default: return Matrix(random, between(random, 1, 20), between(random, 18, 700));
    }
}

}  // namespace

void check_sampler(const Kernels& kernels, Sampler& sampler, Random& random) {
    std::string isa = kernels.name;
    Sampler serial(kernels.sampling, std::make_shared<ThreadPool>(1));
    Matrix matrix = random_matrix(random);
    std::vector<int> tokens = sampler.argmax_tokens(matrix.logits());
    for (int r = 0; r < matrix.count; ++r)
        require(tokens[static_cast<size_t>(r)] == reference::argmax(reference::replace_nan(matrix.row(r))),
                isa + ": an argmax is wrong");
    check_targets(isa, sampler, serial, random, matrix);
    check_logprobs(isa, sampler, random, matrix);
}

}  // namespace specserve
