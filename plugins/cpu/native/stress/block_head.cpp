// Blocks of draft tokens: one call for all requests gives the bits of each request alone, its chain made token by
// token, on one thread.
#include "ops/block_head.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "ops/linear.hpp"
#include "runtime/kernel_job.hpp"
#include "stress/model.hpp"
#include "stress/random_cache.hpp"
#include "stress/stress.hpp"

namespace specserve {

namespace {

// A request with some committed tokens that lack keys and values, and its block behind them.
struct Sequence {
    Sequence(Random& random, int block_size, int first_proposing, int& num_blocks)
        : start(between(random, 0, 1) ? between(random, 0, 20) : between(random, 110, 270)),
          length(between(random, 1, 4)), num_rows(between(random, 1 + first_proposing, 6)),
          wanted(between(random, 1, num_rows - first_proposing)) {
        for (int position = 0; position < end() + num_rows; position += block_size) blocks.push_back(num_blocks++);
        target = {0, random(), between(random, 0, 50), between(random, 0, 1) ? 0.7f : 0.0f, 0, 1.0, 0.0};
    }
    int end() const { return start + length; }

    int start, length, num_rows, wanted;
    std::vector<int32_t> blocks;
    TargetRow target;
};

// Rows of some sequences, as the head reads them.
template <typename S>
struct BlockRows {
    BlockRows(int block_size, int tile_rows) : plan(block_size, tile_rows) {}

    void add(const Sequence& sequence, bool sees_ahead, const S* hidden, size_t width) {
        auto slot = [&](int position) {
            int64_t block = sequence.blocks[static_cast<size_t>(position / plan.block_size())];
            return block * plan.block_size() + position % plan.block_size();
        };
        for (int position = sequence.start; position < sequence.end(); ++position) {
            positions.push_back(position);
            slots.push_back(slot(position));
        }
        states.insert(states.end(), hidden, hidden + static_cast<size_t>(sequence.length) * width);
        firsts.push_back(static_cast<int>(ids.size()));
        wanted.push_back(sequence.wanted);
        TargetRow target = sequence.target;
        target.row = static_cast<int64_t>(targets.rows.size());
        targets.rows.push_back(target);
        bool fits = sees_ahead ? plan.add_together(sequence.end(), sequence.num_rows, sequence.blocks)
                               : plan.add(sequence.end(), sequence.num_rows, 0, sequence.blocks, {}, 0);
        require(fits, "a block does not fit");
        for (int i = 0; i < sequence.num_rows; ++i) {
            ids.push_back((7 * sequence.start + (i ? 1 : 0)) % Model<S>::kVocab);
            block_positions.push_back(sequence.end() + i);
            block_slots.push_back(slot(sequence.end() + i));
        }
    }
    typename BlockHead<S>::Committed committed() const {
        return {static_cast<int>(positions.size()), states.data(), positions.data(), slots.data()};
    }
    typename BlockHead<S>::Blocks blocks(int first_proposing) const {
        return {static_cast<int>(ids.size()),
                ids.data(),
                block_positions.data(),
                block_slots.data(),
                &plan,
                firsts,
                wanted,
                first_proposing};
    }

    AttentionPlan plan;
    std::vector<S> states;
    std::vector<int64_t> positions, slots, ids, block_positions, block_slots;
    std::vector<int> firsts, wanted;
    TargetRows targets;
};

// The parts of a head around a model's layers.
template <typename S>
struct HeadParts {
    HeadParts(ThreadPool& pool, Random& random, const Model<S>& model)
        : target_size(2 * between(random, 1, 20)), rank(between(random, 0, 1) ? 2 * between(random, 1, 9) : 0) {
        int hidden = model.hidden, numbers = 2 * 2 * model.heads.num_kv_heads * model.heads.head_dim;
        bool judges = between(random, 0, 1);
        for (auto [out_features, in_features] : {std::pair{hidden, target_size},
                                                 {numbers, hidden},
                                                 {Model<S>::kVocab, std::max(rank, 2)},
                                                 {1, hidden + (between(random, 0, 1) ? rank : 0)},
                                                 {std::max(rank, 2), hidden + std::max(rank, 2)},
                                                 {3 * std::max(rank, 2), hidden + 2 * std::max(rank, 2)}})
            linears.push_back(random_linear<S>(pool, random, out_features, in_features, nullptr).packed);
        embedding = random_numbers<S>(random, static_cast<size_t>(Model<S>::kVocab * hidden));
        entries = random_numbers<S>(random, static_cast<size_t>(Model<S>::kVocab * rank));
        weights = {embedding.data(),    Model<S>::kVocab,  hidden, 1e-5f, linears[0].linear(), model.norm.data(),
                   linears[1].linear(), model.norm.data(), {},     {}};
        if (rank) {
            weights.markov.entries = entries.data();
            weights.markov.rank = rank;
            weights.markov.out = linears[2].linear();
            int kind = between(random, 0, 2);
            if (kind == 1) weights.markov.gate = linears[4].linear();
            if (kind == 2) weights.markov.joint = linears[5].linear();
        }
        if (judges) weights.confidence = linears[3].linear();
    }

    int target_size, rank;
    std::deque<PackedWeights<S>> linears;
    std::vector<S> embedding, entries;
    BlockHeadWeights<S> weights;
};

// A linear map of one row, on one thread.
template <typename S>
std::vector<float> logits_of(const KernelTable<S>& table, const Linear<S>& w, const S* x) {
    InputQuantizer<S> quantizer;
    quantizer.add(w);
    quantizer.reserve(1);
    Rows<const S> row{x, w.in_features, 1};
    quantizer.quantize(table, w, row, 0, 1);
    std::vector<float> out(static_cast<size_t>(w.out_features));
    KernelJob<S> job(table);
    table.linear_logits(w, quantizer.inputs(w, row), {0, w.num_panels()}, {out.data(), w.out_features, 1});
    return out;
}

// A request's chain, by the layers' own pass over its whole block and a sampler's call for each token.
template <typename S>
std::vector<DraftToken> chain_of(const KernelTable<S>& table, DecoderStack<S>& stack, Sampler& sampler,
                                 const HeadParts<S>& parts, const BlockRows<S>& rows, int first_proposing) {
    const BlockHeadWeights<S>& w = parts.weights;
    size_t width = static_cast<size_t>(w.hidden_size);
    int count = static_cast<int>(rows.ids.size());
    std::vector<S> x(rows.ids.size() * width);
    for (size_t i = 0; i < rows.ids.size(); ++i)
        std::memcpy(&x[i * width], w.embedding + static_cast<size_t>(rows.ids[i]) * width, width * sizeof(S));
    std::vector<std::vector<DeltaRun<S>>> no_runs(2);
    stack.forward(x.data(), rows.block_positions.data(), rows.block_slots.data(), rows.plan, {}, nullptr, {}, no_runs);
    std::vector<DraftToken> chain;
    int64_t last = rows.ids[0];
    TargetRows target = rows.targets;
    MarkovHead<S> markov(table, std::make_shared<ThreadPool>(1), w.markov, w.hidden_size);
    markov.start(1);
    for (int i = 0; i < rows.wanted[0]; ++i, ++target.rows[0].index) {
        int64_t row = first_proposing + i;
        require(row < count, "a block has too few rows");
        std::vector<float> logits(Model<S>::kVocab);
        stack.logits(x.data(), &row, 1, logits.data());
        std::vector<S> state(width);
        table.rms_norm({&x[static_cast<size_t>(row) * width], w.hidden_size, 1}, w.final_norm, w.eps, w.hidden_size,
                       {state.data(), w.hidden_size, 1});
        int64_t before = last;
        if (markov.exists()) markov.add({{before, 0, 0}}, {state.data(), 0}, logits.data(), Model<S>::kVocab);
        DraftToken token =
            sampler.draft_tokens({logits.data(), Model<S>::kVocab, 1, Model<S>::kVocab}, target, nullptr, 1)[0];
        last = token.token;
        if (w.confidence) {
            std::vector<S> read(static_cast<size_t>(w.confidence->in_features));
            auto rest = std::copy(state.begin(), state.end(), read.begin());
            std::copy_n(markov.entry(before), read.size() - width, rest);
            float logit = logits_of(table, *w.confidence, read.data())[0];
            float sigmoid = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(logit))));
            token.probability = std::max(sigmoid, std::numeric_limits<float>::min());
        }
        chain.push_back(token);
    }
    return chain;
}

}  // namespace

template <typename S>
void check_block_head(const Kernels& kernels, std::shared_ptr<ThreadPool> pool, Random& random) {
    const KernelTable<S>& table = kernel_table<S>(kernels);
    const KVLayout<S>& layout = random_layout(table, random, false);
    HeadShape heads{0, between(random, 1, 3), between(random, 1, 20) * 2};
    heads.num_heads = heads.num_kv_heads * between(random, 1, 4);
    Model<S> model(*pool, random, heads, false);
    if (model.has_aux) return;  // layers of a block head read no auxiliary input
    HeadParts<S> parts(*pool, random, model);
    int block_size = between(random, 1, 20), first_proposing = between(random, 0, 1), num_blocks = 0;
    bool sees_ahead = between(random, 0, 1);
    std::vector<Sequence> sequences;
    for (int request = between(random, 1, 4); request; --request)
        sequences.emplace_back(random, block_size, first_proposing, num_blocks);

    size_t width = static_cast<size_t>(parts.target_size);
    std::vector<S> hidden = random_numbers<S>(random, sequences.size() * 4 * width);
    BlockRows<S> together(block_size, rows_per_tile(heads));
    std::vector<BlockRows<S>> alone;
    for (size_t i = 0; i < sequences.size(); ++i) {
        const S* states = hidden.data() + i * 4 * width;
        together.add(sequences[i], sees_ahead, states, width);
        alone.emplace_back(block_size, 1);
        alone.back().add(sequences[i], sees_ahead, states, width);
    }
    RandomCache<S> first(random, layout, heads, num_blocks * block_size), other_first = first;
    RandomCache<S> second(random, layout, heads, num_blocks * block_size), other_second = second;
    auto one_thread = std::make_shared<ThreadPool>(1);
    Sampler sampler(kernels.sampling, pool), serial(kernels.sampling, one_thread);
    model.first_cache = first.layer();
    DecoderStack<S> stack = model.stack(kernels, layout, pool, second.layer(), {}, 0);
    model.first_cache = other_first.layer();
    DecoderStack<S> other = model.stack(kernels, layout, one_thread, other_second.layer(), {}, 0);

    BlockHead<S> head(table, pool, parts.weights), serial_head(table, one_thread, parts.weights);
    head.write(stack, together.committed());
    std::vector<DraftToken> made =
        head.draft(stack, sampler, together.blocks(first_proposing), together.targets, nullptr, Model<S>::kVocab);
    size_t longest = made.size() / sequences.size();
    std::string isa = kernels.name;
    for (size_t i = 0; i < sequences.size(); ++i) {
        serial_head.write(other, alone[i].committed());
        std::vector<DraftToken> chain = chain_of(table, other, serial, parts, alone[i], first_proposing);
        for (size_t depth = 0; depth < longest; ++depth) {
            DraftToken expected = depth < chain.size() ? chain[depth] : DraftToken{0, 0.0f};
            require(made[i * longest + depth].token == expected.token, isa + ": a block has another token");
            require(made[i * longest + depth].probability == expected.probability, isa + ": another probability");
        }
    }
    require(first == other_first && second == other_second, isa + ": the caches of blocks differ");
}

template void check_block_head<Bf16>(const Kernels&, std::shared_ptr<ThreadPool>, Random&);
template void check_block_head<float>(const Kernels&, std::shared_ptr<ThreadPool>, Random&);

}  // namespace specserve
