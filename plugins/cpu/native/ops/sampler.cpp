#include "ops/sampler.hpp"

#include <algorithm>
#include <numeric>

namespace specserve {

namespace {
constexpr int kSlice = 8192;            // tokens of a task where rows are few; a multiple of the lanes
constexpr int64_t kAlone = 2 * kSlice;  // less work than this is not worth waking anybody
constexpr int kTasksPerThread = 4;

Peak better(Peak a, Peak b) { return b.value > a.value || (b.value == a.value && b.token < a.token) ? b : a; }

// Rows cut into slices of the same tokens always, and the best of each.
struct Slices {
    struct Part {
        int row, begin, end;
    };
    Slices(int rows, int size) : each(divided_up(size, kSlice)), size(size), peaks(static_cast<size_t>(rows * each)) {}
    int count() const { return static_cast<int>(peaks.size()); }
    Part part(int t) const { return {t / each, t % each * kSlice, std::min((t % each + 1) * kSlice, size)}; }
    Peak best_of(int row) const {
        const Peak* first = peaks.data() + static_cast<ptrdiff_t>(row) * each;
        return std::accumulate(first + 1, first + each, *first, better);
    }

    int each, size;
    std::vector<Peak> peaks;
};

// The caller's thread, where it needs no crew.
struct Alone {
    int thread() const { return 0; }
    template <typename Task>
    void share(int tasks, Task task) {
        for (int t = 0; t < tasks; ++t) task(t);
    }
};
}  // namespace

void Sampler::Scratch::fit(int size) {
    size_t room = static_cast<size_t>(size) + 2 * kLanes;
    if (own.size() >= room) return;
    own.resize(room);
    values.resize(room);
    weights.resize(room);
    ids.resize(room);
}

std::vector<Sampler::Scratch>& Sampler::scratch_for(size_t count) {
    if (scratch_.size() < count) scratch_.resize(count);
    return scratch_;
}

bool Sampler::is_split(int count, int size) const {
    return pool_->size() > 1 && count < 2 * pool_->size() && size > kSlice;
}

template <typename Body>
void Sampler::in_phases(int phases, int64_t work, Body body) {
    if (pool_->size() == 1 || work < kAlone) {
        Alone alone;
        body(alone);
        return;
    }
    pool_->run(phases, [&](Pool::Crew& crew) { body(crew); });
}

std::vector<int> Sampler::argmax(Logits logits) {
    std::vector<int> tokens(static_cast<size_t>(logits.count));
    int64_t work = int64_t{logits.count} * logits.size;
    if (!is_split(logits.count, logits.size)) {
        int tasks = std::min(logits.count, kTasksPerThread * pool_->size());
        in_phases(1, work, [&](auto& crew) {
            crew.share(tasks, [&](int t) {
                for (int64_t r = int64_t{logits.count} * t / tasks; r < int64_t{logits.count} * (t + 1) / tasks; ++r)
                    tokens[static_cast<size_t>(r)] = table_.peak(logits.row(r), 0, logits.size).token;
            });
        });
        return tokens;
    }
    Slices slices(logits.count, logits.size);
    in_phases(1, work, [&](auto& crew) {
        crew.share(slices.count(), [&](int t) {
            Slices::Part part = slices.part(t);
            slices.peaks[static_cast<size_t>(t)] = table_.peak(logits.row(part.row), part.begin, part.end);
        });
    });
    for (int r = 0; r < logits.count; ++r) tokens[static_cast<size_t>(r)] = slices.best_of(r).token;
    return tokens;
}

std::vector<int> Sampler::targets(Logits logits, const TargetRows& wanted) {
    std::lock_guard<std::mutex> mine(mutex_);
    int count = static_cast<int>(wanted.rows.size());
    if (is_split(count, logits.size)) return split_targets(logits, wanted);
    std::vector<Scratch>& scratch = scratch_for(static_cast<size_t>(pool_->size()));
    std::vector<int> tokens(static_cast<size_t>(count));
    in_phases(1, int64_t{count} * logits.size, [&](auto& crew) {
        crew.share(count, [&](int r) {
            size_t i = static_cast<size_t>(r);
            Ready row = prepare(logits, wanted, wanted.rows[i], scratch[static_cast<size_t>(crew.thread())]);
            Peak best = table_.peak(row.at, 0, logits.size);
            if (row.noisy) best = table_.noisy_peak(row.at, logits.size, 0, logits.size, row.noise, best.token);
            tokens[i] = best.token;
        });
    });
    return tokens;
}

// Rows that need it are prepared whole, by one thread each; their peaks and their noise are everybody's.
std::vector<int> Sampler::split_targets(Logits logits, const TargetRows& wanted) {
    int count = static_cast<int>(wanted.rows.size());
    std::vector<Scratch>& scratch = scratch_for(static_cast<size_t>(count));
    std::vector<Ready> rows(static_cast<size_t>(count));
    Slices raw(count, logits.size), noisy(count, logits.size);
    in_phases(3, int64_t{count} * logits.size, [&](auto& crew) {
        crew.share(count, [&](int r) {
            size_t i = static_cast<size_t>(r);
            rows[i] = prepare(logits, wanted, wanted.rows[i], scratch[i]);
        });
        crew.share(raw.count(), [&](int t) {
            Slices::Part part = raw.part(t);
            raw.peaks[static_cast<size_t>(t)] =
                table_.peak(rows[static_cast<size_t>(part.row)].at, part.begin, part.end);
        });
        crew.share(noisy.count(), [&](int t) {
            Slices::Part part = noisy.part(t);
            const Ready& row = rows[static_cast<size_t>(part.row)];
            Peak best = raw.best_of(part.row);
            if (row.noisy) best = table_.noisy_peak(row.at, logits.size, part.begin, part.end, row.noise, best.token);
            noisy.peaks[static_cast<size_t>(t)] = best;
        });
    });
    std::vector<int> tokens;
    for (int r = 0; r < count; ++r) tokens.push_back(noisy.best_of(r).token);
    return tokens;
}

}  // namespace specserve
