// Whole layers: threads, tiles and calls into which they are cut change no bit of what comes out, nor of the cache.
#include <algorithm>
#include <deque>
#include <utility>

#include "runtime/packed_weights.hpp"
#include "ops/decoder_stack.hpp"
#include "stress/stress.hpp"

namespace specserve {

namespace {

// Requests of any length, with drafts of any shape, in a plan for a cache of their own.
struct Batch {
    Batch(Random& random, int block_size, int rows_per_tile) : plan(block_size, rows_per_tile) {
        for (int request = between(random, 1, 3); request; --request) {
            int start = between(random, 0, 1) ? between(random, 0, 20) : between(random, 110, 270),
                known = between(random, 1, 4);
            int guesses = between(random, 0, 6);
            std::vector<int32_t> parents;
            if (between(random, 0, 1))
                for (int node = 0; node < guesses; ++node) parents.push_back(between(random, -1, node - 1));
            std::vector<int32_t> blocks;
            for (int place = 0; place < start + known + guesses; place += block_size) blocks.push_back(num_blocks++);
            require(plan.add(start, known + guesses, known, blocks, parents), "a plan is refused");
            for (int place = start; place < start + known + guesses; ++place) {
                slots.push_back(int64_t{blocks[static_cast<size_t>(place / block_size)]} * block_size +
                                place % block_size);
                positions.push_back(place);
            }
        }
    }

    Plan plan;
    std::vector<int64_t> slots, positions;
    int num_blocks = 0;
};

template <typename S>
struct Model {
    Model(Random& random, Heads of) : heads(of), hidden(between(random, 1, 30) * 2), inner(16 * between(random, 1, 3)) {
        int qkv = (heads.queries + 2 * heads.keys) * heads.dim, query = heads.queries * heads.dim;
        for (auto [outs, ins] :
             {std::pair{qkv, hidden}, {hidden, query}, {2 * inner, hidden}, {hidden, inner}, {37, hidden}}) {
            std::vector<S> weight = numbers<S>(random, static_cast<size_t>(outs * ins));
            maps.emplace_back(weight.data(), weight.data(), outs, ins);
        }
        gains = numbers<S>(random, static_cast<size_t>(std::max(hidden, heads.dim)));
        angles = numbers<float>(random, static_cast<size_t>(kPositions * heads.dim));
    }

    Stack<S> stack(const Kernels& kernels, const Layout<S>& layout, std::shared_ptr<Pool> pool, CacheLayer<S> cache,
                   int window) const {
        const S* gain = gains.data();
        Layer<S> layer{gain, maps[0].linear(), window ? gain : nullptr, gain,  maps[1].linear(),
                       gain, maps[2].linear(), maps[3].linear(),        cache, window};
        Shape shape{hidden, inner, heads, 1e-5f, 0.2f, 1e15f, heads.dim, angles.data(), angles.data()};
        return Stack<S>(table_of<S>(kernels), layout, std::move(pool), shape, {layer, layer}, gain, maps[4].linear());
    }

    static constexpr int kPositions = 300;
    Heads heads;
    int hidden, inner;
    std::vector<Packed<S>> maps;
    std::vector<S> gains;
    std::vector<float> angles;
};

// Adapters of two layers: one that adds to some projections, and one that adds nothing.
template <typename S>
struct Adapters {
    Adapters(Random& random, const Model<S>& model) {
        adding.layers.resize(2);
        silent.layers.resize(2);
        for (AdapterLayer<S>& layer : adding.layers) {
            LowRank<S>* places[] = {&layer.qkv, &layer.o, &layer.gate_up, &layer.down};
            for (size_t i = 0; i < 4; ++i)
                for (int parts = between(random, 0, 2); parts; --parts)
                    places[i]->push_back(part(random, model.maps[i].linear()));
        }
    }

    LowRankPart<S> part(Random& random, const Linear<S>& of) {
        int rank = 2 * between(random, 1, 10), first = between(random, 0, of.outs - 1),
            outs = between(random, 1, of.outs - first);
        auto map = [&](int to, int from) {
            std::vector<S> weight = numbers<S>(random, static_cast<size_t>(to * from));
            maps.emplace_back(weight.data(), nullptr, to, from);
            return maps.back().linear();
        };
        Linear<S> down = map(rank, of.ins);
        return {down, map(outs, rank), first};
    }

    // Some rows under the one, some under the other, the rest under none; cut as it happens.
    typename Stack<S>::Segments segments(Random& random, int rows) const {
        typename Stack<S>::Segments all;
        for (int begin = 0; begin < rows;) {
            int end = between(random, begin + 1, rows), kind = between(random, 0, 2);
            if (kind) all.push_back({begin, end, kind == 1 ? &adding : &silent});
            begin = end;
        }
        return all;
    }

    Adapter<S> adding, silent;
    std::deque<Packed<S>> maps;
};

// Every row by itself.
template <typename S>
typename Stack<S>::Segments cut(const typename Stack<S>::Segments& segments) {
    typename Stack<S>::Segments rows;
    for (const Segment<S>& segment : segments)
        for (int r = segment.begin; r < segment.end; ++r) rows.push_back({r, r + 1, segment.adapter});
    return rows;
}

}  // namespace

// The same batch on one thread and on many, cut into other tiles, other calls and other segments.
template <typename S>
void check_stack(const Kernels& kernels, std::shared_ptr<Pool> pool, Random& random) {
    const Table<S>& table = table_of<S>(kernels);
    bool in_panels = between(random, 0, 1);
    const Layout<S>& layout = in_panels ? table.in_panels : table.by_slot;
    Heads heads{0, between(random, 1, 3), in_panels ? between(random, 1, 3) * kLanes : between(random, 1, 20) * 2};
    heads.queries = heads.keys * between(random, 1, 4);
    int block_size = in_panels ? between(random, 1, 2) * layout.slots : between(random, 1, 20),
        window = between(random, 0, 1) * between(random, 1, 200);
    Random again = random;
    Batch batch(random, block_size, rows_per_tile(heads)), other(again, block_size, between(random, 1, 9));
    Model<S> model(random, heads);
    size_t slot = static_cast<size_t>(heads.keys * heads.dim),
           layer = static_cast<size_t>(batch.num_blocks * block_size) * slot;
    std::vector<S> cache = numbers<S>(random, 2 * layer), second = cache;
    int rows = batch.plan.num_rows();
    std::vector<S> x = numbers<S>(random, static_cast<size_t>(rows * model.hidden)), y = x;
    Adapters<S> adapters(random, model);
    auto segments = between(random, 0, 1) ? adapters.segments(random, rows) : typename Stack<S>::Segments{};
    std::vector<int64_t> last{rows - 1};
    std::vector<float> logits(37), others(static_cast<size_t>(rows) * 37);

    Stack<S> many =
        model.stack(kernels, layout, pool, {cache.data(), cache.data() + layer, heads.keys, heads.dim}, window);
    many.forward(x.data(), batch.positions.data(), batch.slots.data(), batch.plan, 0, 2, segments);
    many.logits(x.data(), last.data(), 1, logits.data());
    Stack<S> one = model.stack(kernels, layout, std::make_shared<Pool>(1),
                               {second.data(), second.data() + layer, heads.keys, heads.dim}, window);
    one.forward(y.data(), other.positions.data(), other.slots.data(), other.plan, 0, 1, cut<S>(segments));
    one.forward(y.data(), other.positions.data(), other.slots.data(), other.plan, 1, 2, cut<S>(segments));
    one.logits(y.data(), nullptr, rows, others.data());
    std::string who = kernels.name;
    require(same(x.data(), y.data(), x.size()), who + ": hidden states depend on threads or tiles");
    require(same(cache.data(), second.data(), cache.size()), who + ": the caches differ");
    std::vector<S> before = numbers<S>(random, x.size()), after = before;
    many.forward(before.data(), batch.positions.data(), batch.slots.data(), batch.plan, 0, 2, {});
    many.forward(after.data(), batch.positions.data(), batch.slots.data(), batch.plan, 0, 2,
                 {{0, rows, &adapters.silent}});
    require(same(before.data(), after.data(), x.size()), who + ": layers in pieces have other bits");
    require(same(logits.data(), others.data() + (rows - 1) * 37, logits.size()),
            who + ": logits depend on the other rows");
}

template void check_stack<Bf16>(const Kernels&, std::shared_ptr<Pool>, Random&);
template void check_stack<float>(const Kernels&, std::shared_ptr<Pool>, Random&);

}  // namespace specserve
