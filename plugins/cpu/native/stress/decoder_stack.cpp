// Whole layers: threads, tiles and the split into calls change no bit of the outputs or of the cache.
#include <algorithm>
#include <deque>

#include "stress/model.hpp"
#include "stress/random_cache.hpp"
#include "stress/stress.hpp"

namespace specserve {

namespace {

// Requests of random lengths with random draft trees, in a cache of their own.
struct Batch {
    Batch(Random& random, int block_size, int rows_per_tile) : plan(block_size, rows_per_tile) {
        for (int request = between(random, 1, 3); request; --request) {
            int start = between(random, 0, 1) ? between(random, 0, 20) : between(random, 110, 270);
            int num_committed = between(random, 1, 4), num_drafts = between(random, 0, 6);
            int end = start + num_committed + num_drafts;
            std::vector<int32_t> parents;
            if (between(random, 0, 1))
                for (int node = 0; node < num_drafts; ++node) parents.push_back(between(random, -1, node - 1));
            std::vector<int32_t> blocks;
            for (int position = 0; position < end; position += block_size) blocks.push_back(num_blocks++);
            runs.push_back({num_committed, {parents.begin(), parents.end()}});
            for (int node = 0; parents.empty() && node < num_drafts; ++node) runs.back().parents.push_back(node - 1);
            require(plan.add(start, end - start, num_committed, blocks, parents, 0), "a request does not fit");
            for (int position = start; position < end; ++position) {
                slots.push_back(int64_t{blocks[static_cast<size_t>(position / block_size)]} * block_size +
                                position % block_size);
                positions.push_back(position);
            }
        }
    }

    AttentionPlan plan;
    std::vector<int64_t> slots, positions;
    std::vector<RunOfBatch> runs;
    int num_blocks = 0;
};

// Adapters of two layers: one with low-rank parts of some projections, and one that adds nothing.
template <typename S>
struct Adapters {
    Adapters(ThreadPool& pool, Random& random, const Model<S>& model) {
        nonzero.layers.resize(2);
        zero.layers.resize(2);
        for (AdapterLayer<S>& layer : nonzero.layers) {
            LowRank<S>* projections[] = {&layer.qkv, &layer.o, &layer.gate_up, &layer.down};
            size_t index = static_cast<size_t>(&layer - nonzero.layers.data());
            for (size_t i = 0; i < 4; ++i) add_parts(pool, random, model.linear(index, i), *projections[i]);
            if (model.gate_of == GateOf::kHead) add_parts(pool, random, model.linears[5].linear(), layer.gate);
            if (!model.routing.count) continue;
            add_parts(pool, random, model.expert_linears[0].linear(), layer.router);
            layer.experts.resize(static_cast<size_t>(between(random, 0, model.routing.count)));
            for (size_t i = 0; i < layer.experts.size(); ++i) {
                add_parts(pool, random, model.expert_linears[2 * i + 1].linear(), layer.experts[i].gate_up);
                add_parts(pool, random, model.expert_linears[2 * i + 2].linear(), layer.experts[i].down);
            }
        }
    }

    void add_parts(ThreadPool& pool, Random& random, const Linear<S>& w, LowRank<S>& parts) {
        for (int count = between(random, 0, 2); count; --count) parts.push_back(part(pool, random, w));
    }

    LowRankPart<S> part(ThreadPool& pool, Random& random, const Linear<S>& w) {
        int rank = 2 * between(random, 1, 10), first_output = between(random, 0, w.out_features - 1);
        int num_outputs = between(random, 1, w.out_features - first_output);
        auto linear = [&](int out_features, int in_features) {
            std::vector<S> weight = random_numbers<S>(random, static_cast<size_t>(out_features * in_features));
            linears.emplace_back(pool, weight.data(), nullptr, out_features, in_features);
            return linears.back().linear();
        };
        Linear<S> down = linear(rank, w.in_features);
        return {down, linear(num_outputs, rank), first_output};
    }

    // Random runs of rows with either adapter or none.
    typename DecoderStack<S>::Segments segments(Random& random, int rows) const {
        typename DecoderStack<S>::Segments all;
        for (int begin = 0; begin < rows;) {
            int end = between(random, begin + 1, rows), kind = between(random, 0, 2);
            if (kind) all.push_back({begin, end, kind == 1 ? &nonzero : &zero});
            begin = end;
        }
        return all;
    }

    Adapter<S> nonzero, zero;
    std::deque<PackedWeights<S>> linears;
};

// The same segments, cut into one per row.
template <typename S>
typename DecoderStack<S>::Segments split_by_row(const typename DecoderStack<S>::Segments& segments) {
    typename DecoderStack<S>::Segments rows;
    for (const AdapterSegment<S>& segment : segments)
        for (int r = segment.begin; r < segment.end; ++r) rows.push_back({r, r + 1, segment.adapter});
    return rows;
}

// A stack with the model's gated delta net, if it has one, and states of its own.
template <typename S>
struct WithStates {
    WithStates(const Model<S>& model, const Kernels& kernels, std::shared_ptr<ThreadPool> pool, const Batch& batch)
        : runs(batch.runs) {
        if (!model.net) return;
        net = std::make_unique<GatedDeltaNet<S>>(model.net->net(kernels, std::move(pool)));
        states = std::make_unique<RandomStates<S>>(model.net->shape, runs);
    }
    // By layer, of the next batch of the stack.
    std::vector<std::vector<DeltaRun<S>>> next(DecoderStack<S>& stack, int rows) {
        stack.reserve(rows);
        if (!net) return {{}, {}};
        return {states->runs(runs, stack.mixer_rows(0, rows), stack.mixed_rows()), {}};
    }
    bool operator==(const WithStates& other) const { return !net || *states == *other.states; }

    const std::vector<RunOfBatch>& runs;
    std::unique_ptr<GatedDeltaNet<S>> net;
    std::unique_ptr<RandomStates<S>> states;
};

}  // namespace

// The same batch on one thread and on several, with other tiles, other calls and other segments.
template <typename S>
void check_decoder_stack(const Kernels& kernels, std::shared_ptr<ThreadPool> pool, Random& random) {
    const KernelTable<S>& table = kernel_table<S>(kernels);
    bool in_panels = between(random, 0, 1);
    const KVLayout<S>& layout = random_layout(table, random, in_panels);
    HeadShape heads{0, between(random, 1, 3), in_panels ? between(random, 1, 3) * kLanes : between(random, 1, 20) * 2};
    heads.num_heads = heads.num_kv_heads * between(random, 1, 4);
    int block_size = in_panels ? between(random, 1, 2) * layout.page_slots : between(random, 1, 20);
    int min_key = between(random, 0, 1);
    std::vector<float> sinks = random_numbers<float>(random, static_cast<size_t>(heads.num_heads));
    ScoreRules rules{between(random, 0, 1) * between(random, 1, 200), 0.25f * static_cast<float>(between(random, 0, 4)),
                     between(random, 0, 1) ? sinks.data() : nullptr};
    Random same_random = random;
    Batch batch(random, block_size, rows_per_tile(heads)), other(same_random, block_size, between(random, 1, 9));
    Model<S> model(*pool, random, heads, true);
    RandomCache<S> cache(random, layout, heads, batch.num_blocks * block_size), other_cache = cache;
    int rows = batch.plan.num_rows(), num_slots = batch.num_blocks * block_size;
    std::vector<S> kept = random_numbers<S>(random, static_cast<size_t>(num_slots * model.hidden)), other_kept = kept;
    std::vector<S> x = random_numbers<S>(random, static_cast<size_t>(rows * model.hidden)), other_x = x;
    Adapters<S> adapters(*pool, random, model);
    auto segments = between(random, 0, 1) ? adapters.segments(random, rows) : typename DecoderStack<S>::Segments{};
    std::vector<int64_t> last_row{rows - 1};
    std::vector<S> aux = random_numbers<S>(random, x.size());
    const S* aux_rows = model.has_aux ? aux.data() : nullptr;
    std::vector<S> tapped(x.size()), other_tapped(x.size()), last(x.size());
    std::vector<float> logits(model.kVocab), other_logits(static_cast<size_t>(rows) * model.kVocab);

    auto one_thread = std::make_shared<ThreadPool>(1);
    WithStates<S> of_many(model, kernels, pool, batch), of_one(model, kernels, one_thread, other);
    DecoderStack<S> many =
        model.stack(kernels, layout, pool, cache.layer(), rules, min_key, kept.data(), of_many.net.get());
    auto runs = of_many.next(many, rows);
    many.forward(x.data(), batch.positions.data(), batch.slots.data(), batch.plan, segments, aux_rows,
                 {{1, tapped.data(), model.hidden}, {2, last.data(), model.hidden}}, runs);
    many.logits(x.data(), last_row.data(), 1, logits.data());
    DecoderStack<S> one = model.stack(kernels, layout, one_thread, other_cache.layer(), rules, min_key,
                                      other_kept.data(), of_one.net.get());
    auto other_runs = of_one.next(one, rows);
    one.forward(other_x.data(), other.positions.data(), other.slots.data(), other.plan, split_by_row<S>(segments),
                aux_rows, {{1, other_tapped.data(), model.hidden}}, other_runs);
    one.logits(other_x.data(), nullptr, rows, other_logits.data());
    std::string isa = kernels.name;
    require(same_bits(x.data(), other_x.data(), x.size()), isa + ": hidden states depend on threads or tiles");
    require(same_bits(tapped.data(), other_tapped.data(), x.size()), isa + ": taps depend on threads or tiles");
    require(same_bits(x.data(), last.data(), x.size()), isa + ": the last tap is not the output");
    record(x.data(), x.size());
    record(logits.data(), logits.size());
    require(cache == other_cache, isa + ": the caches differ");
    require(same_bits(kept.data(), other_kept.data(), kept.size()), isa + ": what convolutions keep differs");
    require(of_many == of_one, isa + ": states differ");
    std::vector<S> fused = random_numbers<S>(random, x.size()), unfused = fused;
    many.forward(fused.data(), batch.positions.data(), batch.slots.data(), batch.plan, {}, aux_rows, {}, runs);
    many.forward(unfused.data(), batch.positions.data(), batch.slots.data(), batch.plan, {{0, rows, &adapters.zero}},
                 aux_rows, {}, runs);
    require(same_bits(fused.data(), unfused.data(), x.size()), isa + ": unfused layers have other bits");
    require(same_bits(logits.data(), other_logits.data() + (rows - 1) * model.kVocab, logits.size()),
            isa + ": logits depend on the other rows");
}

template void check_decoder_stack<Bf16>(const Kernels&, std::shared_ptr<ThreadPool>, Random&);
template void check_decoder_stack<float>(const Kernels&, std::shared_ptr<ThreadPool>, Random&);

}  // namespace specserve
