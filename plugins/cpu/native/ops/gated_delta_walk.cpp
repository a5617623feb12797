#include "ops/gated_delta_net.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace specserve {

namespace {

constexpr ptrdiff_t kStreamedSize = 1 << 16;  // floats of a state that no cache keeps until the next step
constexpr ptrdiff_t kLineFloats = 16;

bool begins_line(const float* p) { return reinterpret_cast<uintptr_t>(p) % (kLineFloats * sizeof(float)) == 0; }

}  // namespace

// The columns of a part, over the tokens of its stretch. Between two tokens they are in a block without gaps: rows of S
// would share a few sets of the cache. `blocks`: of the committed tokens, then of the branches. `prefetched`: what the
// next part reads.
template <typename S>
void GatedDeltaNet<S>::walk(const Part& part, const BranchPlan& plan, const float* prefetched, float* blocks) const {
    const Stretch& stretch = part.stretch;
    const DeltaRun<S>& run = *stretch.run;
    const GatedDeltaTable<S>& table = table_.gated_delta;
    int dv = shape_.value_dim, columns = std::min(kDeltaColumns, dv - part.column);
    DeltaColumns target{run.target + first_of(part), dv}, own = target;
    auto block = [&](int index) -> DeltaColumns { return {blocks + index * block_size(), kDeltaColumns}; };
    auto saved = run.saved.begin();
    alignas(kLineFloats * sizeof(float)) float known[kDeltaColumns];
    bool is_known = false, streams = is_streamed(target.data, columns);
    for (int token = stretch.begin, next; token < stretch.end; token = next) {
        while (saved != run.saved.end() && saved->token < token) ++saved;
        bool begins = token == stretch.begin, is_followed = token < run.followed();
        next = is_followed ? std::min(stretch.end, run.followed()) : token + 1;
        if (is_followed && saved != run.saved.end()) next = std::min(next, saved->token + 1);
        bool is_saved = saved != run.saved.end() && saved->token == next - 1;
        const float* next_k = next < stretch.end && run.before(next) == next - 1 ? key_of(part, next) : nullptr;
        DeltaColumns from = begins ? target : block(0), to{};
        if (next <= run.committed) to = next == std::min(stretch.end, run.committed) ? target : block(0);
        if (is_followed) {
            DeltaFollow all{};
            all.from = begins ? source_of(part) : from.data;
            all.from_stride = from.stride;
            all.to = to;
            all.known = known;
            all.next_k = next_k;
            if (begins) all.prefetched = prefetched;
            follow(part, token, next, all);
        } else {
            DeltaStep step = step_of(part, token);
            step.to = to;
            if (token >= run.committed) {
                size_t node = static_cast<size_t>(token - run.committed);
                from = plan.from[node] < 0 ? own : block(1 + plan.from[node]);
                if (!plan.is_leaf[node]) step.to = block(1 + plan.to[node]);
                step.update = run.trails[node].update + ptrdiff_t{part.head} * dv + part.column;
            } else if (next == run.committed && streams) {
                step.streamed = target;
                step.to = is_saved || next < stretch.end ? own = block(0) : DeltaColumns{};
            }
            step.from = begins ? source_of(part) : from.data;
            step.from_stride = from.stride;
            step.known = known;
            step.next_k = next_k;
            if (begins) step.prefetched = prefetched;
            if (!is_known) table.know(step, columns);
            table.step(step, columns);
            to = step.to;
        }
        is_known = next_k;
        if (is_saved)
            for (int r = 0; r < shape_.key_dim; ++r)
                std::memcpy(saved->state + first_of(part) + ptrdiff_t{r} * dv, to.data + r * to.stride,
                            static_cast<size_t>(columns) * sizeof(float));
    }
    if (streams) table.finish_streaming();
}

// Followed tokens [begin, end). `all`: but for what is of a token.
template <typename S>
void GatedDeltaNet<S>::follow(const Part& part, int begin, int end, DeltaFollow all) const {
    const float *k[kTokensOfPiece], *updates[kTokensOfPiece];
    float decays[kTokensOfPiece];
    for (int i = 0; begin + i < end; ++i) {
        k[i] = key_of(part, begin + i);
        updates[i] = part.stretch.run->updates[static_cast<size_t>(begin + i)] +
                     ptrdiff_t{part.head} * shape_.value_dim + part.column;
        decays[i] = gates_of(part.stretch, begin + i)[part.head];
    }
    all.k = k;
    all.updates = updates;
    all.decays = decays;
    all.num_tokens = end - begin;
    all.dk = shape_.key_dim;
    table_.gated_delta.follow(all, std::min(kDeltaColumns, shape_.value_dim - part.column));
}

// Whether a state's columns are written past the caches: where they are whole lines, of states so large that they
// would push others out.
template <typename S>
bool GatedDeltaNet<S>::is_streamed(const float* target, int columns) const {
    return shape_.state_size() >= kStreamedSize && begins_line(target) && shape_.value_dim % kLineFloats == 0 &&
           columns % kLineFloats == 0;
}

template <typename S>
const float* GatedDeltaNet<S>::key_of(const Part& part, int token) const {
    int key_head = part.head / (shape_.value_heads / shape_.key_heads);
    return mixed_of(part.stretch, token) + shape_.key_channels() + key_head * shape_.key_dim;
}

// All but the places of the state, and what is next.
template <typename S>
DeltaStep GatedDeltaNet<S>::step_of(const Part& part, int token) const {
    size_t row = part.stretch.row(token);
    const float* gates = gates_of(part.stretch, token);
    ptrdiff_t column = ptrdiff_t{part.head} * shape_.value_dim + part.column;
    DeltaStep step{};
    step.k = key_of(part, token);
    step.q = step.k - shape_.key_channels();
    step.dk = shape_.key_dim;
    step.v = mixed_of(part.stretch, token) + 2 * shape_.key_channels() + column;
    step.decay = gates[part.head];
    step.beta = gates[shape_.value_heads + part.head];
    step.out = workspace_->outputs.data() + row * static_cast<size_t>(shape_.out_features()) + column;
    return step;
}

template void GatedDeltaNet<Bf16>::walk(const Part&, const BranchPlan&, const float*, float*) const;
template void GatedDeltaNet<float>::walk(const Part&, const BranchPlan&, const float*, float*) const;

}  // namespace specserve
