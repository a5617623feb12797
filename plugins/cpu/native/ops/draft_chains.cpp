#include "ops/draft_chains.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace specserve {

// The chains' roots, which the first pass computes.
template <typename S>
auto DraftChainMaker<S>::first_level(const typename DraftHead<S>::Rows& first, TargetRows targets) -> Level {
    Level level{*first.scored.plan, std::move(targets), {}, {}, {}, {}, {}, {}, {}};
    for (int i = 0; i < first.scored.count; ++i) {
        level.chains.push_back(i);
        level.positions.push_back(first.positions[first.scored.rows[i]]);
    }
    return level;
}

// The best tokens of the rows that are kept become the rows.
template <typename S>
void DraftChainMaker<S>::advance(Level& level, const std::vector<int>& kept, const std::vector<DraftToken>& best) {
    level.plan = level.plan.next_positions(kept);
    level.ids.resize(kept.size());
    level.slots.resize(kept.size());
    level.rows.resize(kept.size());
    for (size_t to = 0; to < kept.size(); ++to) {  // never before the row that it reads
        size_t from = static_cast<size_t>(kept[to]);
        level.chains[to] = level.chains[from];
        level.positions[to] = level.positions[from] + 1;
        level.ids[to] = best[from].token;
        level.targets.rows[to] = level.targets.rows[from];
        level.targets.rows[to].row = level.rows[to] = static_cast<int64_t>(to);
        ++level.targets.rows[to].index;
        const Tile& tile = level.plan.tiles()[to];
        level.plan.find_slots(tile, tile.kv_len - 1, 1, &level.slots[to]);
    }
    level.chains.resize(kept.size());
    level.positions.resize(kept.size());
    level.targets.rows.resize(kept.size());
}

// A pass over the level. own: [chains][hidden_size], what each chain's last pass left and this one leaves.
template <typename S>
const float* DraftChainMaker<S>::run(Level& level, int num_logits, S* own, int hidden_size) {
    size_t width = static_cast<size_t>(hidden_size), num_rows = level.chains.size();
    auto state_of = [&](size_t row) { return own + static_cast<size_t>(level.chains[row]) * width; };
    level.hidden.resize(own ? num_rows * width : 0);
    level.own.resize(level.hidden.size());
    for (size_t row = 0; own && row < num_rows; ++row)
        std::memcpy(&level.hidden[row * width], state_of(row), width * sizeof(S));
    const float* logits = head_.run(stack_, num_logits,
                                    {level.num_rows(),
                                     level.ids.data(),
                                     level.positions.data(),
                                     level.slots.data(),
                                     own ? level.hidden.data() : nullptr,
                                     false,
                                     &level.plan,
                                     {level.rows.data(), level.num_rows(), &level.plan}},
                                    own ? level.own.data() : nullptr);
    for (size_t row = 0; own && row < num_rows; ++row)
        std::memcpy(state_of(row), &level.own[row * width], width * sizeof(S));
    return logits;
}

template <typename S>
DraftChains DraftChainMaker<S>::run(const typename DraftHead<S>::Rows& first, TargetRows targets, const int64_t* ids,
                                    int num_logits, const std::vector<int>& steps, S* own, int hidden_size) {
    size_t longest = static_cast<size_t>(*std::max_element(steps.begin(), steps.end()));
    DraftChains result;
    result.tokens.assign(steps.size() * longest, DraftToken{0, 0.0f});
    Level level = first_level(first, std::move(targets));
    const float* logits = head_.run(stack_, num_logits, first, own);
    auto began = std::chrono::steady_clock::now();
    for (size_t depth = 0;; ++depth) {
        std::vector<DraftToken> best =
            sampler_.draft_tokens({logits, num_logits, level.num_rows(), num_logits}, level.targets, ids, 1);
        std::vector<int> kept;
        for (int row = 0; row < level.num_rows(); ++row) {
            size_t chain = static_cast<size_t>(level.chains[static_cast<size_t>(row)]);
            const DraftToken& token = best[static_cast<size_t>(row)];
            result.tokens[chain * longest + depth] = token;
            if (token.probability > 0.0f && static_cast<int>(depth) + 1 < steps[chain]) kept.push_back(row);
        }
        if (kept.empty()) break;
        advance(level, kept, best);
        logits = run(level, num_logits, own, hidden_size);
        ++result.further_passes;
    }
    result.further_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return result;
}

template class DraftChainMaker<Bf16>;
template class DraftChainMaker<float>;

}  // namespace specserve
