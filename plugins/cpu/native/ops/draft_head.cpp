#include "ops/draft_head.hpp"

#include <cstring>

#include "ops/linear.hpp"
#include "runtime/kernel_job.hpp"

namespace specserve {

template <typename S>
void DraftHead<S>::normalize(const S* x, const S* weight, float eps, int size, int count, S* out,
                             ptrdiff_t out_stride) const {
    if (weight) return table_.rms_norm({x, size, count}, weight, eps, size, {out, out_stride, count});
    for (int r = 0; r < count; ++r)
        std::memcpy(out + r * out_stride, x + ptrdiff_t{r} * size, static_cast<size_t>(size) * sizeof(S));
}

template <typename S>
void DraftHead<S>::linear(const Linear<S>& w, const S* x, int count, S* out) {
    quantizer_.reserve(count);
    run_kernels(*pool_, table_, 2, [&](ThreadPool::Team& team) {
        multiply(team, table_, w, quantizer_, {x, w.in_features, count}, {out, w.out_features, count});
    });
}

// The hidden states as the head reads them: [rows][hidden_size].
template <typename S>
const S* DraftHead<S>::states(const Rows& rows) {
    const DraftHeadWeights<S>& w = weights_;
    if (!rows.from_target) return rows.hidden;
    grow(states_, rows.count, w.hidden_size);
    if (w.target_fc)
        linear(*w.target_fc, rows.hidden, rows.count, states_.data());
    else
        normalize(rows.hidden, w.target_norm, w.target_eps, w.hidden_size, rows.count, states_.data(), w.hidden_size);
    return states_.data();
}

// Into x_ and, if layers read it, aux_.
template <typename S>
void DraftHead<S>::enter(const Rows& rows) {
    const DraftHeadWeights<S>& w = weights_;
    int hidden = w.hidden_size;
    grow(x_, rows.count, hidden);
    grow(aux_, rows.count, hidden);
    S* embedded = w.reads_hidden ? aux_.data() : x_.data();
    for (int r = 0; r < rows.count; ++r)
        std::memcpy(embedded + ptrdiff_t{r} * hidden, w.embedding + rows.ids[r] * hidden,
                    static_cast<size_t>(hidden) * sizeof(S));
    if (!w.reads_hidden) return;
    const S* state = states(rows);
    if (!w.fc) return normalize(state, w.hnorm, w.eps, hidden, rows.count, x_.data(), hidden);
    grow(joined_, rows.count, 2 * hidden);
    S* first = joined_.data();
    normalize(embedded, w.enorm, w.eps, hidden, rows.count, w.embedding_first ? first : first + hidden, 2 * hidden);
    normalize(state, w.hnorm, w.eps, hidden, rows.count, w.embedding_first ? first + hidden : first, 2 * hidden);
    linear(*w.fc, first, rows.count, x_.data());
}

template <typename S>
const float* DraftHead<S>::run(DecoderStack<S>& stack, int num_logits, const Rows& rows, S* own) {
    enter(rows);
    bool has_aux = weights_.reads_hidden && !weights_.fc;
    stack.forward_some(x_.data(), rows.positions, rows.slots, *rows.plan, rows.count, has_aux ? aux_.data() : nullptr,
                       rows.scored);
    int hidden = weights_.hidden_size, num_scored = rows.scored.count;
    if (own) normalize(x_.data(), weights_.own_norm, weights_.eps, hidden, num_scored, own, hidden);
    grow(logits_, num_scored, num_logits);
    if (num_scored) stack.logits(x_.data(), nullptr, num_scored, logits_.data());
    return logits_.data();
}

template class DraftHead<Bf16>;
template class DraftHead<float>;

}  // namespace specserve
