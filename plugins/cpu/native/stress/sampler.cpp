// The sampler: every kind of row, alone and among others, in one thread and in many, against plain arithmetic.
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

// One row: mostly numbers, ties among them; sometimes broken in part or as a whole.
std::vector<float> row_of(Random& random, int size) {
    std::vector<float> x = numbers<float>(random, static_cast<size_t>(size));
    int kind = between(random, 0, 9);
    auto put = [&](int percent, float what) {
        for (float& each : x)
            if (chance(random, percent)) each = what;
    };
    for (float& each : x) each *= kind == 0 ? 1e37f : 4.0f;
    if (kind == 1) put(100, -kInfinity);
    if (kind == 2) put(100, kNan);
    if (kind == 3) put(20, kNan);
    if (kind == 4) put(97, -kInfinity);
    if (kind == 5) put(2, kInfinity);
    if (kind == 6) put(60, 1.5f);
    if (kind == 7)
        for (float& each : x) each = std::round(each);
    return x;
}

// Rows `stride` apart in memory that ends with the last of them.
struct Matrix {
    Matrix(Random& random, int count, int size) : stride(size + between(random, 0, 3)), count(count), size(size) {
        memory.assign(static_cast<size_t>((count - 1) * stride + size), kInfinity);
        for (int r = 0; r < count; ++r) {
            std::vector<float> x = row_of(random, size);
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

// Tokens of a path, where some come twice.
void edit(TargetRows& wanted, Random& random, int size) {
    int count = between(random, 0, 8);
    Edit edit{static_cast<Edit::Kind>(between(random, 0, 3)), wanted.ids.size(), wanted.values.size(), count};
    if (edit.kind == Edit::penalize) {
        edit.repetition = chance(random, 30) ? 1.0f : 1.3f;
        edit.presence = 0.5f * static_cast<float>(between(random, -1, 2));
        edit.frequency = 0.25f * static_cast<float>(between(random, -1, 2));
    }
    for (int i = 0; i < count; ++i) {
        bool again = i && chance(random, 30);
        wanted.ids.push_back(again ? wanted.ids.back() : between(random, 0, size - 1));
        if (edit.kind == Edit::penalize || edit.kind == Edit::shift)
            wanted.values.push_back(static_cast<float>(between(random, 0, 3)));
    }
    ++wanted.rows.back().num_edits;
    wanted.edits.push_back(edit);
}

// What is asked of `count` rows of the matrix; some are asked for twice, with other edits.
TargetRows targets_of(Random& random, const Matrix& matrix, int count, const std::vector<float>& given) {
    TargetRows wanted;
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
        if (chance(random, 10)) row.given = given.data();
        row.first_edit = wanted.edits.size();
        wanted.rows.push_back(row);
        if (chance(random, 50))
            for (int edits = between(random, 1, 3); edits; --edits) edit(wanted, random, matrix.size);
    }
    return wanted;
}

// Row r of `wanted` and its edits, alone.
TargetRows alone(const TargetRows& wanted, size_t r) {
    TargetRows one = wanted;
    one.rows = {wanted.rows[r]};
    return one;
}

void check_targets(const std::string& who, Sampler& sampler, Sampler& by_itself, Random& random, const Matrix& matrix) {
    std::vector<float> given = row_of(random, matrix.size), noise(static_cast<size_t>(matrix.size));
    TargetRows wanted = targets_of(random, matrix, matrix.count, given);
    std::vector<int> tokens = sampler.targets(matrix.logits(), wanted);
    require(tokens.size() == wanted.rows.size(), who + ": rows without a token");
    for (size_t r = 0; r < tokens.size(); ++r) {
        const TargetRow& row = wanted.rows[r];
        std::vector<float> x = plain::edited(row.given ? given : matrix.row(row.row), wanted, row);
        sampler.noise(row.seed, row.index, matrix.size, noise.data());
        std::vector<int> right = plain::tokens(x, row, noise);
        require(std::find(right.begin(), right.end(), tokens[r]) != right.end(), who + ": a token is wrong");
        if (chance(random, 20))
            require(by_itself.targets(matrix.logits(), alone(wanted, r))[0] == tokens[r],
                    who + ": a token depends on others");
    }
}

// token: whose log-probability was asked for
void check_best(const std::string& who, const RowLogprobs& found, const std::vector<float>& x, int64_t token,
                int64_t count) {
    float top = x[static_cast<size_t>(plain::best(x))];
    if (!std::isfinite(top))
        return require(std::isnan(found.logprob) && found.top_ids.empty(),
                       who + ": a broken row has log-probabilities");
    double sum = 0;
    for (float each : x) sum += std::exp(double{each} - top);
    double whole = top + std::log(sum);
    auto near = [&](float got, size_t t) {
        double exact = x[t] - whole;
        return std::fabs(got - exact) <= 1e-5 * (1 + std::fabs(exact)) || (got == x[t] && !std::isfinite(got));
    };
    require(near(found.logprob, static_cast<size_t>(token)), who + ": a log-probability is wrong");
    size_t wanted = static_cast<size_t>(std::min<int64_t>(count, static_cast<int64_t>(x.size())));
    require(found.top_ids.size() <= wanted && found.top_logprobs.size() == found.top_ids.size(),
            who + ": too many tokens");
    std::vector<float> ranked = x;
    std::sort(ranked.begin(), ranked.end(), std::greater<>());
    for (size_t i = 0; i < wanted; ++i) {
        if (i >= found.top_ids.size()) {  // only tokens that are NaN may be missing
            require(ranked[i] == -kInfinity, who + ": a token is missing");
            continue;
        }
        require(near(found.top_logprobs[i], static_cast<size_t>(found.top_ids[i])),
                who + ": a token's log-probability is wrong");
        float lower = i ? found.top_logprobs[i - 1] : kInfinity;
        require(found.top_logprobs[i] < lower ||
                    (found.top_logprobs[i] == lower && found.top_ids[i] > found.top_ids[i - 1]),
                who + ": tokens are not in order");
        double rounding = 1e-6 * (std::fabs(ranked[i]) + std::fabs(whole));  // logits that differ by less may tie
        require(x[static_cast<size_t>(found.top_ids[i])] >= ranked[i] - rounding || ranked[i] == -kInfinity,
                who + ": a better token is missing");
    }
}

void check_logprobs(const std::string& who, Sampler& sampler, Random& random, const Matrix& matrix) {
    std::vector<int64_t> tokens, counts;
    for (int r = 0; r < matrix.count; ++r) {
        tokens.push_back(between(random, 0, matrix.size - 1));
        counts.push_back(chance(random, 10) ? matrix.size + 5 : between(random, 0, 20));
    }
    std::vector<RowLogprobs> found = sampler.logprobs(matrix.logits(), tokens.data(), counts.data());
    for (size_t r = 0; r < found.size(); ++r)
        check_best(who, found[r], plain::without_nan(matrix.row(static_cast<int64_t>(r))), tokens[r], counts[r]);
}

// Few tokens, some hundred, and as many as are shared among threads; few rows and many.
Matrix of_some_size(Random& random) {
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
    std::string who = kernels.name;
    Sampler by_itself(kernels.sampling, std::make_shared<Pool>(1));
    Matrix matrix = of_some_size(random);
    std::vector<int> tokens = sampler.argmax(matrix.logits());
    for (int r = 0; r < matrix.count; ++r)
        require(tokens[static_cast<size_t>(r)] == plain::best(plain::without_nan(matrix.row(r))),
                who + ": an argmax is wrong");
    check_targets(who, sampler, by_itself, random, matrix);
    check_logprobs(who, sampler, random, matrix);
}

}  // namespace specserve
