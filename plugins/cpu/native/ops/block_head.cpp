#include "ops/block_head.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "ops/linear.hpp"
#include "runtime/kernel_job.hpp"

namespace specserve {

namespace {
constexpr int kRowsPerBlockNorm = 2;
constexpr int kWritePhases = 6;  // two linear maps of up to two phases each, a norm, and the writing
}  // namespace

template <typename S>
BlockHead<S>::BlockHead(const KernelTable<S>& table, std::shared_ptr<ThreadPool> pool, BlockHeadWeights<S> weights)
    : table_(table), pool_(std::move(pool)), weights_(weights),
      markov_(table, pool_, weights.markov, weights.hidden_size) {
    quantizer_.add(weights_.fc);
    quantizer_.add(weights_.keys_values);
    if (weights_.confidence) quantizer_.add(*weights_.confidence);
}

template <typename S>
void BlockHead<S>::write(const DecoderStack<S>& stack, const Committed& rows) {
    const BlockHeadWeights<S>& w = weights_;
    size_t count = static_cast<size_t>(rows.count);
    ptrdiff_t hidden = w.hidden_size;
    grow(states_, count, hidden);
    grow(context_, count, hidden);
    grow(made_, count, w.keys_values.out_features);
    quantizer_.reserve(rows.count);
    run_kernels(*pool_, table_, kWritePhases, [&](ThreadPool::Team& team) {
        multiply(team, table_, w.fc, quantizer_, {rows.hidden, w.fc.in_features, rows.count},
                 {states_.data(), hidden, rows.count});
        team.parallel_for(ceil_div(rows.count, kRowsPerBlockNorm), [&](int task) {
            int begin = task * kRowsPerBlockNorm, n = std::min(kRowsPerBlockNorm, rows.count - begin);
            table_.rms_norm({states_.data() + begin * hidden, hidden, n}, w.hidden_norm, w.eps, w.hidden_size,
                            {context_.data() + begin * hidden, hidden, n});
        });
        multiply(team, table_, w.keys_values, quantizer_, {context_.data(), hidden, rows.count},
                 {made_.data(), w.keys_values.out_features, rows.count});
        stack.store_keys_values(team, made_.data(), rows.positions, rows.slots, rows.count);
    });
}

// Those of all blocks, ascending.
template <typename S>
std::vector<int64_t> BlockHead<S>::proposing(const Blocks& blocks) {
    std::vector<int64_t> rows;
    for (size_t block = 0; block < blocks.wanted.size(); ++block)
        for (int i = 0; i < blocks.wanted[block]; ++i)
            rows.push_back(blocks.firsts[block] + blocks.first_proposing + i);
    return rows;
}

// Leaves what the last layer gives for these rows, ascending, at the beginning of x_.
template <typename S>
void BlockHead<S>::run_layers(DecoderStack<S>& stack, const Blocks& blocks, const std::vector<int64_t>& rows) {
    ptrdiff_t hidden = weights_.hidden_size;
    int count = static_cast<int>(rows.size());
    grow(x_, static_cast<size_t>(blocks.num_rows), hidden);
    for (int r = 0; r < blocks.num_rows; ++r)
        std::memcpy(x_.data() + r * hidden, weights_.embedding + blocks.ids[r] * hidden,
                    static_cast<size_t>(hidden) * sizeof(S));
    bool is_whole = count == blocks.num_rows;
    AttentionPlan some = is_whole ? AttentionPlan(1, 1) : blocks.plan->of_rows(rows);
    stack.forward_some(x_.data(), blocks.positions, blocks.slots, *blocks.plan, blocks.num_rows, nullptr,
                       {rows.data(), count, is_whole ? blocks.plan : &some});
}

// The first rows of x_.
template <typename S>
void BlockHead<S>::normed(int rows, S* out, ptrdiff_t stride) {
    table_.rms_norm({x_.data(), weights_.hidden_size, rows}, weights_.final_norm, weights_.eps, weights_.hidden_size,
                    {out, stride, rows});
}

template <typename S>
void BlockHead<S>::rows(DecoderStack<S>& stack, const Blocks& blocks, float* logits, S* states) {
    std::vector<int64_t> rows = proposing(blocks);
    run_layers(stack, blocks, rows);
    stack.logits(x_.data(), nullptr, static_cast<int>(rows.size()), logits);
    if (states) normed(static_cast<int>(rows.size()), states, weights_.hidden_size);
}

// Numbers of a row of judged_.
template <typename S>
ptrdiff_t BlockHead<S>::judged_width() const {
    return std::max(confidence_inputs(), ptrdiff_t{markov_.reads_state() ? weights_.hidden_size : 0});
}

// To the logits of each chain's row, what its last token adds.
template <typename S>
void BlockHead<S>::add_markov(const Level& level, int num_logits) {
    if (!markov_.exists()) return;
    std::vector<typename MarkovHead<S>::Place> places;
    for (size_t i = 0; i < level.tokens.size(); ++i)
        places.push_back({level.tokens[i], level.targets.rows[i].row, level.chains[i]});
    markov_.add(places, {judged_.data(), judged_width()}, logits_.data(), num_logits);
}

// For the confidence head, where it reads them.
template <typename S>
void BlockHead<S>::keep_entries(const Level& level) {
    ptrdiff_t hidden = weights_.hidden_size, width = confidence_inputs(), rank = width - hidden;
    for (size_t i = 0; rank > 0 && i < level.tokens.size(); ++i)
        std::copy_n(markov_.entry(level.tokens[i]), rank, judged_.data() + level.targets.rows[i].row * width + hidden);
}

template <typename S>
void BlockHead<S>::find_confidences(size_t rows) {
    const Linear<S>& w = *weights_.confidence;
    int count = static_cast<int>(rows);
    grow(sure_, rows, 1);
    Rows<const S> judged{judged_.data(), w.in_features, count};
    quantizer_.reserve(count);
    quantizer_.quantize(table_, w, judged, 0, count);
    KernelJob<S> job(table_);
    table_.linear_logits(w, quantizer_.inputs(w, judged), {0, w.num_panels()}, {sure_.data(), 1, count});
}

// Never 0, which marks the end of a chain.
template <typename S>
float BlockHead<S>::confidence(size_t row) const {
    float sigmoid = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(sure_[row]))));
    return std::max(sigmoid, std::numeric_limits<float>::min());
}

template <typename S>
std::vector<DraftToken> BlockHead<S>::draft(DecoderStack<S>& stack, Sampler& sampler, const Blocks& blocks,
                                            const TargetRows& targets, const int64_t* ids, int num_logits) {
    size_t longest = static_cast<size_t>(*std::max_element(blocks.wanted.begin(), blocks.wanted.end()));
    std::vector<int64_t> rows = proposing(blocks);
    std::vector<size_t> first_row;  // of each chain among the rows
    Level level{{}, targets, {}};
    size_t num_rows = 0;
    for (size_t chain = 0; chain < blocks.wanted.size(); ++chain) {
        first_row.push_back(num_rows);
        level.chains.push_back(chain);
        level.tokens.push_back(blocks.ids[blocks.firsts[chain]]);
        level.targets.rows[chain].row = static_cast<int64_t>(num_rows);
        num_rows += static_cast<size_t>(blocks.wanted[chain]);
    }
    run_layers(stack, blocks, rows);
    grow(logits_, rows.size(), num_logits);
    stack.logits(x_.data(), nullptr, static_cast<int>(rows.size()), logits_.data());
    markov_.start(blocks.wanted.size());
    if (ptrdiff_t width = judged_width()) {
        judged_.assign(rows.size() * static_cast<size_t>(width), S{});  // rows behind a chain's end have no entry
        normed(static_cast<int>(rows.size()), judged_.data(), width);
    }
    std::vector<DraftToken> made(blocks.wanted.size() * longest, DraftToken{0, 0.0f});
    Logits logits{logits_.data(), num_logits, static_cast<int>(rows.size()), num_logits};
    for (int depth = 0; !level.chains.empty(); ++depth) {
        add_markov(level, num_logits);
        keep_entries(level);
        std::vector<DraftToken> best = sampler.draft_tokens(logits, level.targets, ids, 1);
        size_t kept = 0;
        for (size_t i = 0; i < best.size(); ++i) {
            size_t chain = level.chains[i];
            made[chain * longest + static_cast<size_t>(depth)] = best[i];
            if (best[i].probability == 0.0f || depth + 1 >= blocks.wanted[chain]) continue;
            level.chains[kept] = chain;
            level.tokens[kept] = best[i].token;
            level.targets.rows[kept] = level.targets.rows[i];
            ++level.targets.rows[kept].row;
            ++level.targets.rows[kept++].index;
        }
        level.chains.resize(kept);
        level.tokens.resize(kept);
        level.targets.rows.resize(kept);
    }
    if (!weights_.confidence) return made;
    find_confidences(rows.size());
    for (size_t chain = 0; chain < first_row.size(); ++chain)
        for (size_t depth = 0; depth < longest; ++depth)
            if (DraftToken& token = made[chain * longest + depth]; token.probability > 0.0f)
                token.probability = confidence(first_row[chain] + depth);
    return made;
}

template class BlockHead<Bf16>;
template class BlockHead<float>;

}  // namespace specserve
