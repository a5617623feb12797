#include "ops/gated_delta_net.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "runtime/kernel_job.hpp"

namespace specserve {

namespace {

constexpr int kPhasesOfPiece = 3;

}  // namespace

// Committed tokens in pieces that the workspace has room for. A run's draft tokens are in the piece of its last
// committed one.
template <typename S>
auto GatedDeltaNet<S>::pieces(std::vector<DeltaRun<S>>& runs) const -> std::vector<std::vector<Stretch>> {
    std::vector<std::vector<Stretch>> all(1);
    int used = 0;
    for (DeltaRun<S>& run : runs) {
        for (int begin = 0; begin < run.num_tokens();) {
            if (used >= kTokensOfPiece) {
                all.emplace_back();
                used = 0;
            }
            int end = std::min(run.committed, begin + kTokensOfPiece - used);
            if (end == run.committed) end = run.num_tokens();
            all.back().push_back({&run, begin, end, used});
            used += end - begin;
            begin = end;
        }
    }
    return all;
}

// The last child of a draft token goes on in its place, the others in places of their own. Leaves leave theirs.
template <typename S>
auto GatedDeltaNet<S>::plan_branches(const DeltaRun<S>& run) -> BranchPlan {
    size_t count = run.parents.size();
    std::vector<int> children(count), free;
    for (int parent : run.parents)
        if (parent >= 0) ++children[static_cast<size_t>(parent)];
    std::vector<int> left = children;
    BranchPlan plan{std::vector<int>(count), std::vector<int>(count), std::vector<bool>(count), 0};
    for (size_t node = 0; node < count; ++node) {
        int parent = run.parents[node];
        int& from = plan.from[node] = parent < 0 ? -1 : plan.to[static_cast<size_t>(parent)];
        int& to = plan.to[node];
        if (parent >= 0 && --left[static_cast<size_t>(parent)] == 0) {
            to = from;
        } else if (!free.empty()) {
            to = free.back();
            free.pop_back();
        } else {
            to = plan.num_branches++;
        }
        plan.is_leaf[node] = children[node] == 0;
        if (plan.is_leaf[node]) free.push_back(to);
    }
    return plan;
}

template <typename S>
void GatedDeltaNet<S>::mix(std::vector<DeltaRun<S>>& runs) const {
    std::lock_guard<std::mutex> lock(workspace_->in_use);
    Work work = prepare(runs);
    run_kernels(*workspace_->pool, table_, work.num_phases, [&](ThreadPool::Team& team) { run(team, work); });
}

template <typename S>
auto GatedDeltaNet<S>::prepare(std::vector<DeltaRun<S>>& runs) const -> Work {
    std::vector<std::vector<Stretch>> all = pieces(runs);
    std::vector<BranchPlan> plans;
    int most_tokens = 0, most_branches = 0;
    for (const DeltaRun<S>& run : runs) {
        plans.push_back(plan_branches(run));
        most_branches = std::max(most_branches, plans.back().num_branches);
        if (run.committed == 0)
            std::memcpy(run.target, run.source, static_cast<size_t>(shape_.state_size()) * sizeof(float));
    }
    for (const std::vector<Stretch>& piece : all)
        if (!piece.empty()) {
            const Stretch& last = piece.back();
            most_tokens = std::max(most_tokens, last.first + last.end - last.begin);
        }
    DeltaWorkspace& workspace = *workspace_;
    workspace.mixed.reserve(ptrdiff_t{most_tokens} * shape_.channels());
    workspace.gates.reserve(ptrdiff_t{most_tokens} * 2 * shape_.value_heads);
    workspace.outputs.reserve(ptrdiff_t{most_tokens} * shape_.out_features());
    for (LineBuffer& blocks : workspace.blocks) blocks.reserve((1 + most_branches) * block_size());
    int num_phases = kPhasesOfPiece * static_cast<int>(all.size());
    return {std::move(all), std::move(plans), runs.data(), num_phases};
}

template <typename S>
void GatedDeltaNet<S>::run(ThreadPool::Team& team, const Work& work) const {
    for (const std::vector<Stretch>& piece : work.pieces) compute(team, piece, work.plans.data(), work.first_run);
}

template <typename S>
void GatedDeltaNet<S>::compute(ThreadPool::Team& team, const std::vector<Stretch>& piece, const BranchPlan* plans,
                               const DeltaRun<S>* first_run) const {
    std::vector<Token> tokens;
    for (const Stretch& stretch : piece)
        for (int token = stretch.begin; token < stretch.end; ++token)
            tokens.push_back({*stretch.run, token, static_cast<size_t>(stretch.first + token - stretch.begin)});
    int num_tokens = static_cast<int>(tokens.size());
    team.parallel_for_ranges(num_tokens * shape_.key_heads, [&](int begin, int end) {
        for (int i = begin; i < end; ++i) {
            const Token& token = tokens[static_cast<size_t>(i / shape_.key_heads)];
            convolve(token, i % shape_.key_heads);
            if (i % shape_.key_heads == 0) leave(token);
        }
    });
    int blocks = ceil_div(shape_.value_dim, kDeltaColumns), of_run = shape_.value_heads * blocks;
    int num_walks = static_cast<int>(piece.size()) * of_run;
    float* of_thread = workspace_->blocks[static_cast<size_t>(team.thread_index())].data();
    auto part = [&](int i) -> Part {
        return {piece[static_cast<size_t>(i / of_run)], i % of_run / blocks, i % blocks * kDeltaColumns};
    };
    team.parallel_for(num_walks, [&](int i) {
        Part own = part(i);
        const float* next = i + 1 < num_walks ? source_of(part(i + 1)) : nullptr;
        walk(own, plans[own.stretch.run - first_run], next, of_thread);
    });
    team.parallel_for_ranges(num_tokens * shape_.value_heads, [&](int begin, int end) {
        for (int i = begin; i < end; ++i)
            finish(tokens[static_cast<size_t>(i / shape_.value_heads)], i % shape_.value_heads);
    });
}

// The query, the key and the values of a key head; of followed tokens the key alone.
template <typename S>
void GatedDeltaNet<S>::convolve(const Token& token, int key_head) const {
    const DeltaRun<S>& run = token.run;
    ConvInputs<S> inputs{};
    inputs.num_taps = shape_.taps;
    int at = token.index;
    for (; at >= 0 && inputs.num_rows < shape_.taps; at = run.before(at))
        inputs.rows[inputs.num_rows++] = run.rows[static_cast<size_t>(at)];
    const float* window = run.source + shape_.window_begin();
    for (int i = inputs.num_rows; i < shape_.taps; ++i)
        inputs.window[i] = window + ptrdiff_t{i - inputs.num_rows} * shape_.channels();

    const GatedDeltaTable<S>& table = table_.gated_delta;
    float* mixed = workspace_->mixed.data() + token.row * static_cast<size_t>(shape_.channels());
    auto of_channels = [&](int begin, int count) {
        table.convolve(inputs, weights_.taps, shape_.channels(), begin, count, mixed + begin);
        return mixed + begin;
    };
    int dk = shape_.key_dim, values = shape_.out_features() / shape_.key_heads;
    float* k = of_channels(shape_.key_channels() + key_head * dk, dk);
    table.set_length(k, 1.0f, dk);
    if (token.index < run.followed()) return;
    float* q = of_channels(key_head * dk, dk);
    table.set_length(q, 1.0f / __builtin_sqrtf(static_cast<float>(dk)), dk);
    of_channels(2 * shape_.key_channels() + key_head * values, values);
}

// What a token has once: its decays and betas, its trail, and the windows behind it.
template <typename S>
void GatedDeltaNet<S>::leave(const Token& token) const {
    const DeltaRun<S>& run = token.run;
    int heads = shape_.value_heads;
    const S* row = run.rows[static_cast<size_t>(token.index)];
    const S *b = row + shape_.channels(), *a = b + heads;
    float* decay = workspace_->gates.data() + token.row * static_cast<size_t>(2 * heads);
    table_.gated_delta.gates(a, b, weights_.dt_bias, weights_.rate, heads, decay, decay + heads);
    if (token.index >= run.committed)
        std::memcpy(run.trails[static_cast<size_t>(token.index - run.committed)].row, row,
                    static_cast<size_t>(shape_.trail_width()) * sizeof(S));
    if (token.index + 1 == run.committed) store_window(run, token.index, run.target);
    for (const SavedState& saved : run.saved)
        if (saved.token == token.index) store_window(run, token.index, saved.state);
}

template <typename S>
void GatedDeltaNet<S>::store_window(const DeltaRun<S>& run, int token, float* state) const {
    float* to = state + shape_.window_begin();
    const float* from = run.source + shape_.window_begin();
    for (int i = 0; i + 1 < shape_.taps; ++i, to += shape_.channels()) {
        if (token >= 0) {
            table_.widen(run.rows[static_cast<size_t>(token)], shape_.channels(), to);
            token = run.before(token);
        } else {
            std::memcpy(to, from, static_cast<size_t>(shape_.channels()) * sizeof(float));
            from += shape_.channels();
        }
    }
}

template <typename S>
void GatedDeltaNet<S>::finish(const Token& token, int head) const {
    S* out = token.run.outputs[static_cast<size_t>(token.index)];
    if (!out) return;
    int dv = shape_.value_dim;
    const S* z = token.run.rows[static_cast<size_t>(token.index)] + shape_.trail_width() + head * dv;
    const float* o = workspace_->outputs.data() + token.row * static_cast<size_t>(shape_.out_features()) + head * dv;
    table_.gated_delta.norm_and_gate(o, z, weights_.norm, weights_.eps, dv, out + head * dv);
}

template class GatedDeltaNet<Bf16>;
template class GatedDeltaNet<float>;

}  // namespace specserve
