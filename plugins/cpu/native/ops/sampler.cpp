#include "ops/sampler.hpp"

#include <algorithm>
#include <numeric>

namespace specserve {

namespace {
constexpr int kSliceTokens = 8192;                      // of a task where rows are split; a multiple of kLanes
constexpr int64_t kMinParallelWork = 2 * kSliceTokens;  // less is not worth waking threads
constexpr int kTasksPerThread = 4;

ArgMax better(ArgMax a, ArgMax b) { return b.score > a.score || (b.score == a.score && b.token < a.token) ? b : a; }

// Rows split into slices of kSliceTokens, and the argmax of each slice.
struct SplitRows {
    struct Slice {
        int row, begin, end;
    };
    SplitRows(int rows, int size)
        : slices_per_row(ceil_div(size, kSliceTokens)), size(size), maxima(static_cast<size_t>(rows * slices_per_row)) {
    }
    int count() const { return static_cast<int>(maxima.size()); }
    Slice slice(int i) const {
        int first = i % slices_per_row;
        return {i / slices_per_row, first * kSliceTokens, std::min((first + 1) * kSliceTokens, size)};
    }
    ArgMax row_argmax(int row) const {
        const ArgMax* first = maxima.data() + static_cast<ptrdiff_t>(row) * slices_per_row;
        return std::accumulate(first + 1, first + slices_per_row, *first, better);
    }

    int slices_per_row, size;
    std::vector<ArgMax> maxima;
};

// Stands in for ThreadPool::Team where the calling thread does all tasks.
struct SerialTeam {
    int thread_index() const { return 0; }
    template <typename Task>
    void parallel_for(int num_tasks, Task task) {
        for (int t = 0; t < num_tasks; ++t) task(t);
    }
};
}  // namespace

void Sampler::Workspace::reserve(int size) {
    size_t capacity = static_cast<size_t>(size) + 2 * kLanes;
    if (logits.size() >= capacity) return;
    logits.resize(capacity);
    values.resize(capacity);
    weights.resize(capacity);
    ids.resize(capacity);
}

std::vector<Sampler::Workspace>& Sampler::workspaces(size_t count) {
    if (workspaces_.size() < count) workspaces_.resize(count);
    return workspaces_;
}

// Few rows of a large vocabulary: several threads share a row.
bool Sampler::splits_rows(int count, int size) const {
    return pool_->size() > 1 && count < 2 * pool_->size() && size > kSliceTokens;
}

template <typename Body>
void Sampler::run(int max_phases, int64_t work, Body body) {
    if (pool_->size() == 1 || work < kMinParallelWork) {
        SerialTeam team;
        body(team);
        return;
    }
    pool_->run(max_phases, [&](ThreadPool::Team& team) { body(team); });
}

std::vector<int> Sampler::argmax_tokens(Logits logits) {
    std::vector<int> tokens(static_cast<size_t>(logits.count));
    int64_t work = int64_t{logits.count} * logits.size;
    if (!splits_rows(logits.count, logits.size)) {
        int tasks = std::min(logits.count, kTasksPerThread * pool_->size());
        run(1, work, [&](auto& team) {
            team.parallel_for(tasks, [&](int t) {
                for (int64_t r = int64_t{logits.count} * t / tasks; r < int64_t{logits.count} * (t + 1) / tasks; ++r)
                    tokens[static_cast<size_t>(r)] = table_.argmax(logits.row(r), 0, logits.size).token;
            });
        });
        return tokens;
    }
    SplitRows split(logits.count, logits.size);
    run(1, work, [&](auto& team) {
        team.parallel_for(split.count(), [&](int i) {
            SplitRows::Slice slice = split.slice(i);
            split.maxima[static_cast<size_t>(i)] = table_.argmax(logits.row(slice.row), slice.begin, slice.end);
        });
    });
    for (int r = 0; r < logits.count; ++r) tokens[static_cast<size_t>(r)] = split.row_argmax(r).token;
    return tokens;
}

std::vector<int> Sampler::target_tokens(Logits logits, const TargetRows& targets) {
    std::lock_guard<std::mutex> lock(mutex_);
    int count = static_cast<int>(targets.rows.size());
    if (splits_rows(count, logits.size)) return target_tokens_split(logits, targets);
    std::vector<Workspace>& by_thread = workspaces(static_cast<size_t>(pool_->size()));
    std::vector<int> tokens(static_cast<size_t>(count));
    run(1, int64_t{count} * logits.size, [&](auto& team) {
        team.parallel_for(count, [&](int r) {
            size_t i = static_cast<size_t>(r);
            Workspace& workspace = by_thread[static_cast<size_t>(team.thread_index())];
            PreparedRow row = prepare_row(logits, targets, targets.rows[i], workspace);
            ArgMax best = table_.argmax(row.logits, 0, logits.size);
            bool is_lost = lost_all_tokens(logits, targets.rows[i], best.score);
            if (row.is_sampled)
                best = table_.gumbel_argmax(row.logits, logits.size, 0, logits.size, row.gumbel, best.token);
            tokens[i] = is_lost ? kNoToken : best.token;
        });
    });
    return tokens;
}

// A row is prepared by one thread; the argmax without and then with noise is split among threads.
std::vector<int> Sampler::target_tokens_split(Logits logits, const TargetRows& targets) {
    int count = static_cast<int>(targets.rows.size());
    std::vector<Workspace>& by_row = workspaces(static_cast<size_t>(count));
    std::vector<PreparedRow> rows(static_cast<size_t>(count));
    SplitRows greedy(count, logits.size), sampled(count, logits.size);
    run(3, int64_t{count} * logits.size, [&](auto& team) {
        team.parallel_for(count, [&](int r) {
            size_t i = static_cast<size_t>(r);
            rows[i] = prepare_row(logits, targets, targets.rows[i], by_row[i]);
        });
        team.parallel_for(greedy.count(), [&](int i) {
            SplitRows::Slice slice = greedy.slice(i);
            greedy.maxima[static_cast<size_t>(i)] =
                table_.argmax(rows[static_cast<size_t>(slice.row)].logits, slice.begin, slice.end);
        });
        team.parallel_for(sampled.count(), [&](int i) {
            SplitRows::Slice slice = sampled.slice(i);
            const PreparedRow& row = rows[static_cast<size_t>(slice.row)];
            ArgMax best = greedy.row_argmax(slice.row);
            if (row.is_sampled)
                best = table_.gumbel_argmax(row.logits, logits.size, slice.begin, slice.end, row.gumbel, best.token);
            sampled.maxima[static_cast<size_t>(i)] = best;
        });
    });
    std::vector<int> tokens;
    for (int r = 0; r < count; ++r) {
        bool is_lost = lost_all_tokens(logits, targets.rows[static_cast<size_t>(r)], greedy.row_argmax(r).score);
        tokens.push_back(is_lost ? kNoToken : sampled.row_argmax(r).token);
    }
    return tokens;
}

}  // namespace specserve
