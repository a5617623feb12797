#include "ops/draft_chains.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

namespace specserve {

// The rows read what their chains' last passes left.
template <typename S>
void DraftChainMaker<S>::enter(Level& level, const S* own, int hidden_size) const {
    size_t width = static_cast<size_t>(hidden_size);
    level.hidden.resize(level.chains.size() * width);
    level.own.resize(level.chains.size() * width);
    for (size_t i = 0; i < level.chains.size(); ++i)
        std::memcpy(&level.hidden[i * width], own + static_cast<size_t>(level.chains[i]) * width, width * sizeof(S));
}

template <typename S>
DraftChains DraftChainMaker<S>::run(const typename DraftHead<S>::Rows& first, TargetRows targets, const int64_t* ids,
                                    int num_logits, const std::vector<int>& steps, S* own, int hidden_size) {
    size_t num_chains = steps.size(), width = static_cast<size_t>(hidden_size);
    size_t longest = static_cast<size_t>(*std::max_element(steps.begin(), steps.end()));
    DraftChains result;
    result.tokens.assign(num_chains * longest, DraftToken{0, 0.0f});
    std::vector<int64_t> positions(num_chains);  // of each chain's last row
    for (size_t i = 0; i < num_chains; ++i) positions[i] = first.positions[first.scored.rows[i]];
    AttentionPlan plan = *first.scored.plan;
    Level level;
    level.chains.resize(num_chains);
    std::iota(level.chains.begin(), level.chains.end(), 0);
    const float* logits = head_.run(stack_, num_logits, first, own);
    auto began = std::chrono::steady_clock::now();
    for (size_t depth = 0;; ++depth) {
        int count = static_cast<int>(level.chains.size());
        std::vector<DraftToken> best = sampler_.draft_tokens({logits, num_logits, count, num_logits}, targets, ids, 1);
        std::vector<int> kept;
        for (int row = 0; row < count; ++row) {
            size_t chain = static_cast<size_t>(level.chains[static_cast<size_t>(row)]);
            const DraftToken& token = best[static_cast<size_t>(row)];
            result.tokens[chain * longest + depth] = token;
            if (token.probability > 0.0f && static_cast<int>(depth) + 1 < steps[chain]) kept.push_back(row);
        }
        if (kept.empty()) break;
        plan = plan.next_positions(kept);
        level.ids.clear();
        std::vector<int> chains;
        std::vector<TargetRow> rows;
        for (int row : kept) {
            chains.push_back(level.chains[static_cast<size_t>(row)]);
            level.ids.push_back(best[static_cast<size_t>(row)].token);
            rows.push_back(targets.rows[static_cast<size_t>(row)]);
            rows.back().row = static_cast<int64_t>(rows.size()) - 1;
            ++rows.back().index;
        }
        targets.rows = std::move(rows);
        level.chains = std::move(chains);
        size_t num_rows = kept.size();
        level.positions.resize(num_rows);
        level.slots.resize(num_rows);
        level.rows.resize(num_rows);
        std::iota(level.rows.begin(), level.rows.end(), int64_t{0});
        for (size_t i = 0; i < num_rows; ++i) {
            const Tile& tile = plan.tiles()[i];
            level.positions[i] = ++positions[static_cast<size_t>(level.chains[i])];
            plan.find_slots(tile, tile.kv_len - 1, 1, &level.slots[i]);
        }
        if (own) enter(level, own, hidden_size);
        int next_count = static_cast<int>(num_rows);
        logits = head_.run(stack_, num_logits,
                           {next_count,
                            level.ids.data(),
                            level.positions.data(),
                            level.slots.data(),
                            own ? level.hidden.data() : nullptr,
                            false,
                            &plan,
                            {level.rows.data(), next_count, &plan}},
                           own ? level.own.data() : nullptr);
        for (size_t i = 0; own && i < num_rows; ++i)
            std::memcpy(own + static_cast<size_t>(level.chains[i]) * width, &level.own[i * width], width * sizeof(S));
        ++result.further_passes;
    }
    result.further_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return result;
}

template class DraftChainMaker<Bf16>;
template class DraftChainMaker<float>;

}  // namespace specserve
