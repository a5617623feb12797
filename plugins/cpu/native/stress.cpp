// A load of random ragged work for the sanitizers: every instruction set that runs here, memory without a byte to spare.
//
// Rows are compared bit by bit with the same rows alone, and linear maps with double precision. Says "stress: ok".
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "isa.hpp"
#include "packed.hpp"
#include "stack.hpp"

namespace {

using namespace specserve;
using Random = std::mt19937;

void require(bool good, const std::string& what) {
    if (good) return;
    std::fprintf(stderr, "stress: %s\n", what.c_str());
    std::exit(1);
}

int between(Random& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

template <typename S>
const Table<S>& table_of(const Kernels& kernels) {
    if constexpr (sizeof(S) == 2)
        return kernels.bf16;
    else
        return kernels.f32;
}

template <typename S>
S number(float x) {
    if constexpr (sizeof(S) == 4) return x;
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    S narrow;
    uint16_t upper = static_cast<uint16_t>(bits >> 16);
    std::memcpy(&narrow, &upper, sizeof narrow);
    return narrow;
}

double value(float x) { return x; }
double value(Bf16 x) {
    uint32_t bits = uint32_t{x.bits} << 16;
    float wide;
    std::memcpy(&wide, &bits, 4);
    return wide;
}

template <typename S>
std::vector<S> numbers(Random& random, size_t count) {
    std::normal_distribution<float> normal;
    std::vector<S> all(count);
    for (S& x : all) x = number<S>(normal(random));
    return all;
}

template <typename S>
bool same(const S* a, const S* b, size_t count) {
    return std::memcmp(a, b, count * sizeof(S)) == 0;
}

// --- linear maps ----------------------------------------------------------------------------------------

template <typename S>
void check_linear(const Kernels& kernels, Pool& pool, Random& random) {
    int ins = between(random, 1, 70) * kStep<S>, outs = between(random, 1, 70), rows = between(random, 1, 70);
    int row = between(random, 0, rows - 1);
    ptrdiff_t stride = ins + between(random, 0, 3) * kStep<S>;
    std::vector<S> weight = numbers<S>(random, static_cast<size_t>(outs * ins)), bias = numbers<S>(random, static_cast<size_t>(outs));
    Packed<S> packed(weight.data(), between(random, 0, 1) ? bias.data() : nullptr, outs, ins);
    const Linear<S>& w = packed.linear();
    std::vector<S> x = numbers<S>(random, static_cast<size_t>((rows - 1) * stride + ins));
    for (int r = 0; r < rows; ++r)
        if (r != row) x[static_cast<size_t>(r * stride + between(random, 0, ins - 1))] = number<S>(std::numeric_limits<float>::quiet_NaN());
    std::vector<S> out(static_cast<size_t>(rows * outs)), alone(static_cast<size_t>(outs));
    int tasks = between(random, 1, w.num_panels());
    pool.run(1, [&](Pool::Crew& crew) {
        crew.share(tasks, [&](int t) {
            Panels panels{w.num_panels() * t / tasks, w.num_panels() * (t + 1) / tasks};
            table_of<S>(kernels).store(w, {x.data(), stride, rows}, panels, {out.data(), outs, rows});
        });
    });
    table_of<S>(kernels).store(w, {x.data() + row * stride, stride, 1}, {0, w.num_panels()}, {alone.data(), outs, 1});
    require(same(alone.data(), out.data() + row * outs, alone.size()), std::string(kernels.name) + ": a row differs among others");
    for (int o = 0; o < outs; ++o) {
        double exact = w.bias ? value(bias[static_cast<size_t>(o)]) : 0, size = std::fabs(exact);
        for (int i = 0; i < ins; ++i) {
            double part = value(x[static_cast<size_t>(row * stride + i)]) * value(weight[static_cast<size_t>(o * ins + i)]);
            exact += part;
            size += std::fabs(part);
        }
        double allowed = std::ldexp(ins + 2, -24) * size + std::ldexp(std::fabs(exact) + size * 1e-4, sizeof(S) == 2 ? -8 : -24);
        require(std::fabs(value(alone[static_cast<size_t>(o)]) - exact) <= allowed + 1e-37, std::string(kernels.name) + ": a sum is wrong");
    }
}

// --- whole layers ---------------------------------------------------------------------------------------

// Requests of any length, with drafts of any shape, in a plan for a cache of their own.
struct Batch {
    Batch(Random& random, int block_size, int rows_per_tile) : plan(block_size, rows_per_tile) {
        for (int request = between(random, 1, 3); request; --request) {
            int start = between(random, 0, 1) ? between(random, 0, 20) : between(random, 110, 270), known = between(random, 1, 4);
            int guesses = between(random, 0, 6);
            std::vector<int32_t> parents;
            if (between(random, 0, 1))
                for (int node = 0; node < guesses; ++node) parents.push_back(between(random, -1, node - 1));
            std::vector<int32_t> blocks;
            for (int place = 0; place < start + known + guesses; place += block_size) blocks.push_back(num_blocks++);
            require(plan.add(start, known + guesses, known, blocks, parents), "a plan is refused");
            for (int place = start; place < start + known + guesses; ++place) {
                slots.push_back(int64_t{blocks[static_cast<size_t>(place / block_size)]} * block_size + place % block_size);
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
        for (auto [outs, ins] : {std::pair{qkv, hidden}, {hidden, query}, {2 * inner, hidden}, {hidden, inner}, {37, hidden}}) {
            std::vector<S> weight = numbers<S>(random, static_cast<size_t>(outs * ins));
            maps.emplace_back(weight.data(), weight.data(), outs, ins);
        }
        gains = numbers<S>(random, static_cast<size_t>(std::max(hidden, heads.dim)));
        angles = numbers<float>(random, static_cast<size_t>(kPositions * heads.dim));
    }

    Stack<S> stack(const Kernels& kernels, std::shared_ptr<Pool> pool, CacheLayer<S> cache, int window) const {
        const S* gain = gains.data();
        Layer<S> layer{gain, maps[0].linear(), window ? gain : nullptr, gain, maps[1].linear(), gain, maps[2].linear(), maps[3].linear(),
                       cache, window};
        Shape shape{hidden, inner, heads, 1e-5f, 0.2f, 1e15f, heads.dim, angles.data(), angles.data()};
        return Stack<S>(table_of<S>(kernels), std::move(pool), shape, {layer, layer}, gain, maps[4].linear());
    }

    static constexpr int kPositions = 300;
    Heads heads;
    int hidden, inner;
    std::vector<Packed<S>> maps;
    std::vector<S> gains;
    std::vector<float> angles;
};

// The same batch on one thread and on many, cut into other tiles and other calls.
template <typename S>
void check_stack(const Kernels& kernels, std::shared_ptr<Pool> pool, Random& random) {
    Heads heads{0, between(random, 1, 3), between(random, 1, 20) * 2};
    heads.queries = heads.keys * between(random, 1, 4);
    int block_size = between(random, 1, 20), window = between(random, 0, 1) * between(random, 1, 200);
    Random again = random;
    Batch batch(random, block_size, rows_per_tile(heads)), other(again, block_size, between(random, 1, 9));
    Model<S> model(random, heads);
    size_t slot = static_cast<size_t>(heads.keys * heads.dim), layer = static_cast<size_t>(batch.num_blocks * block_size) * slot;
    std::vector<S> cache = numbers<S>(random, 2 * layer), second = cache;
    int rows = batch.plan.num_rows();
    std::vector<S> x = numbers<S>(random, static_cast<size_t>(rows * model.hidden)), y = x;
    std::vector<int64_t> last{rows - 1};
    std::vector<float> logits(37), others(static_cast<size_t>(rows) * 37);

    Stack<S> many = model.stack(kernels, pool, {cache.data(), cache.data() + layer}, window);
    many.forward(x.data(), batch.positions.data(), batch.slots.data(), batch.plan, 0, 2);
    many.logits(x.data(), last.data(), 1, logits.data());
    Stack<S> one = model.stack(kernels, std::make_shared<Pool>(1), {second.data(), second.data() + layer}, window);
    one.forward(y.data(), other.positions.data(), other.slots.data(), other.plan, 0, 1);
    one.forward(y.data(), other.positions.data(), other.slots.data(), other.plan, 1, 2);
    one.logits(y.data(), nullptr, rows, others.data());
    std::string who = kernels.name;
    require(same(x.data(), y.data(), x.size()), who + ": hidden states depend on threads or tiles");
    require(same(cache.data(), second.data(), cache.size()), who + ": the caches differ");
    require(same(logits.data(), others.data() + (rows - 1) * 37, logits.size()), who + ": logits depend on the other rows");
}

// --- the pool -------------------------------------------------------------------------------------------

// Several callers, each with phases that need what the one before left.
void check_pool(Pool& pool, int jobs, uint32_t seed) {
    Random random(seed);
    for (int job = 0; job < jobs; ++job) {
        int phases = between(random, 1, 6), tasks = between(random, 0, 9);
        std::vector<std::vector<int>> done(static_cast<size_t>(phases), std::vector<int>(static_cast<size_t>(tasks)));
        pool.run(phases, [&](Pool::Crew& crew) {
            for (size_t p = 0; p < done.size(); ++p)
                crew.share(tasks, [&](int t) {
                    size_t task = static_cast<size_t>(t), before = static_cast<size_t>(tasks - 1 - t);
                    done[p][task] = 1 + (p ? done[p - 1][before] : 0);
                });
        });
        for (int count : done.back()) require(count == phases, "a phase began before its time");
    }
}

void run_together(std::shared_ptr<Pool> pool, const std::vector<Kernels>& sets, double seconds) {
    auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::vector<std::thread> threads;
    for (uint32_t seed = 1; seed <= 3; ++seed)
        threads.emplace_back([&, seed] {
            Random random(seed);
            for (size_t round = seed; round < 5 || std::chrono::steady_clock::now() < end; ++round) {
                const Kernels& kernels = sets[round % sets.size()];
                check_pool(*pool, 20, seed);
                check_linear<Bf16>(kernels, *pool, random);
                check_linear<float>(kernels, *pool, random);
                check_stack<Bf16>(kernels, pool, random);
                check_stack<float>(kernels, pool, random);
            }
        });
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
    double seconds = argc > 1 ? std::atof(argv[1]) : 2;
    std::vector<Kernels> sets;
    for (const std::string& name : instruction_sets()) sets.push_back(kernels_for(name));
    auto pool = std::make_shared<Pool>(3);
    Random random(7);
    for (const Kernels& kernels : sets)
        for (int round = 0; round < 8; ++round) {
            check_linear<Bf16>(kernels, *pool, random);
            check_linear<float>(kernels, *pool, random);
            check_stack<Bf16>(kernels, pool, random);
            check_stack<float>(kernels, pool, random);
        }
    run_together(pool, sets, seconds);
    std::string names;
    for (const Kernels& kernels : sets) names += std::string(" ") + kernels.name;
    std::printf("stress: ok with%s\n", names.c_str());
    return 0;
}
