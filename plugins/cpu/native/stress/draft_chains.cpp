// Chains of draft tokens: one call for all gives the bits of passes row by row, on one thread.
#include "ops/draft_chains.hpp"

#include "stress/model.hpp"
#include "stress/random_cache.hpp"
#include "stress/stress.hpp"

namespace specserve {

namespace {

// Requests of which a few committed tokens are computed, with blocks for chains behind them.
template <typename S>
struct Roots {
    Roots(Random& random, int block_size, int rows_per_tile, int hidden)
        : plan(block_size, rows_per_tile), last(block_size, rows_per_tile) {
        for (int request = between(random, 1, 4); request; --request) {
            int start = between(random, 0, 1) ? between(random, 0, 20) : between(random, 110, 270);
            int length = between(random, 1, 4), end = start + length;
            steps.push_back(between(random, 1, 5));
            blocks.emplace_back();
            for (int position = 0; position < end + steps.back() - 1; position += block_size)
                blocks.back().push_back(num_blocks++);
            require(plan.add(start, length, length, blocks.back(), {}, 0), "a request does not fit");
            require(last.add(end - 1, 1, 1, blocks.back(), {}, 0), "a request does not fit");
            for (int position = start; position < end; ++position) {
                ids.push_back(between(random, 0, Model<S>::kVocab - 1));
                positions.push_back(position);
                slots.push_back(slot(blocks.size() - 1, position, block_size));
            }
            scored.push_back(static_cast<int64_t>(ids.size()) - 1);
        }
        states = random_numbers<S>(random, ids.size() * static_cast<size_t>(hidden));
    }

    int64_t slot(size_t request, int64_t position, int block_size) const {
        return int64_t{blocks[request][static_cast<size_t>(position / block_size)]} * block_size +
               position % block_size;
    }
    typename DraftHead<S>::Rows rows(bool reads_hidden) const {
        return {static_cast<int>(ids.size()),
                ids.data(),
                positions.data(),
                slots.data(),
                reads_hidden ? states.data() : nullptr,
                true,
                &plan,
                {scored.data(), static_cast<int>(scored.size()), &last}};
    }

    AttentionPlan plan, last;
    std::vector<int> steps;
    std::vector<std::vector<int32_t>> blocks;
    std::vector<int64_t> ids, positions, slots, scored;
    std::vector<S> states;
    int num_blocks = 0;
};

TargetRows random_targets(Random& random, size_t count) {
    TargetRows targets;
    for (size_t i = 0; i < count; ++i) {
        TargetRow row{static_cast<int64_t>(i), random(), between(random, 0, 50), 0.7f, 0, 1.0, 0.0};
        if (between(random, 0, 1)) row.temperature = 0.0f;
        targets.rows.push_back(row);
    }
    return targets;
}

}  // namespace

template <typename S>
void check_draft_chains(const Kernels& kernels, std::shared_ptr<ThreadPool> pool, Random& random) {
    const KernelTable<S>& table = kernel_table<S>(kernels);
    const KVLayout<S>& layout = random_layout(table, random, false);
    HeadShape heads{0, between(random, 1, 3), between(random, 1, 20) * 2};
    heads.num_heads = heads.num_kv_heads * between(random, 1, 4);
    int block_size = between(random, 1, 20);
    Model<S> model(*pool, random, heads, false);
    Roots<S> roots(random, block_size, rows_per_tile(heads), model.hidden);
    RandomCache<S> cache(random, layout, heads, roots.num_blocks * block_size), other_cache = cache;
    std::vector<S> embedding = random_numbers<S>(random, static_cast<size_t>(Model<S>::kVocab * model.hidden));
    DraftHeadWeights<S> weights{};
    weights.embedding = embedding.data();
    weights.vocab_size = Model<S>::kVocab;
    weights.hidden_size = weights.target_size = model.hidden;
    weights.eps = 1e-5f;
    weights.reads_hidden = model.has_aux;
    weights.own_norm = between(random, 0, 1) ? model.norm.data() : nullptr;
    size_t count = roots.steps.size(), width = static_cast<size_t>(model.hidden);
    std::vector<S> own(count * width), other_own(count * width);
    TargetRows targets = random_targets(random, count);
    constexpr int kVocab = Model<S>::kVocab;

    auto one_thread = std::make_shared<ThreadPool>(1);
    Sampler sampler(kernels.sampling, pool), serial(kernels.sampling, one_thread);
    DecoderStack<S> stack = model.stack(kernels, layout, pool, cache.layer(), {}, 0);
    DecoderStack<S> other = model.stack(kernels, layout, one_thread, other_cache.layer(), {}, 0);
    DraftHead<S> head(table, pool, weights), alone(table, one_thread, weights);
    bool reads = model.has_aux;
    DraftChains made =
        DraftChainMaker<S>(head, stack, sampler)
            .run(roots.rows(reads), targets, nullptr, kVocab, roots.steps, reads ? own.data() : nullptr, model.hidden);

    const float* logits = alone.run(other, kVocab, roots.rows(reads), reads ? other_own.data() : nullptr);
    int num_chains = static_cast<int>(count);
    std::vector<DraftToken> first = serial.draft_tokens({logits, kVocab, num_chains, kVocab}, targets, nullptr, 1);
    size_t longest = made.tokens.size() / count;
    std::string isa = kernels.name;
    for (size_t chain = 0; chain < count; ++chain) {
        DraftToken token = first[chain];
        TargetRows own_target{{targets.rows[chain]}, {}, {}, {}};
        own_target.rows[0].row = 0;
        std::vector<S> state(other_own.begin() + static_cast<ptrdiff_t>(chain * width),
                             other_own.begin() + static_cast<ptrdiff_t>((chain + 1) * width));
        int64_t position = roots.positions[static_cast<size_t>(roots.scored[chain])];
        for (size_t depth = 0; depth < longest; ++depth) {
            const DraftToken& found = made.tokens[chain * longest + depth];
            bool is_made = static_cast<int>(depth) < roots.steps[chain] && token.probability > 0.0f;
            require(found.token == (is_made ? token.token : 0), isa + ": a chain has another token");
            require(found.probability == (is_made ? token.probability : 0.0f), isa + ": another probability");
            if (!is_made || static_cast<int>(depth) + 1 >= roots.steps[chain]) break;
            ++position;
            ++own_target.rows[0].index;
            AttentionPlan plan(block_size, rows_per_tile(heads));
            require(plan.add(static_cast<int>(position), 1, 1, roots.blocks[chain], {}, 0), "a chain does not fit");
            int64_t slot = roots.slot(chain, position, block_size), row = 0;
            std::vector<S> next(width);
            logits = alone.run(
                other, kVocab,
                {1, &token.token, &position, &slot, reads ? state.data() : nullptr, false, &plan, {&row, 1, &plan}},
                reads ? next.data() : nullptr);
            state = next;
            token = serial.draft_tokens({logits, kVocab, 1, kVocab}, own_target, nullptr, 1)[0];
        }
        if (reads) require(same_bits(&own[chain * width], state.data(), width), isa + ": another last hidden state");
    }
    for (const DraftToken& made_token : made.tokens) record(&made_token.probability, 1);
    require(cache == other_cache, isa + ": the caches of chains differ");
}

template void check_draft_chains<Bf16>(const Kernels&, std::shared_ptr<ThreadPool>, Random&);
template void check_draft_chains<float>(const Kernels&, std::shared_ptr<ThreadPool>, Random&);

}  // namespace specserve
