// A load of random ragged work for the sanitizers: every instruction set that runs here, memory without a byte to
// spare.
//
// Rows are compared bit by bit with the same rows alone, and with plain arithmetic. Says "stress: ok".
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "runtime/isa.hpp"
#include "stress/stress.hpp"

namespace specserve {

void require(bool good, const std::string& what) {
    if (good) return;
    std::fprintf(stderr, "stress: %s\n", what.c_str());
    std::exit(1);
}

namespace {

// An instruction set, and a sampler that all threads share.
struct Set {
    Set(const Kernels& of, std::shared_ptr<Pool> pool) : kernels(of), sampler(of.sampling, std::move(pool)) {}

    Kernels kernels;
    Sampler sampler;
};

void check(Set& set, std::shared_ptr<Pool> pool, Random& random) {
    check_linear<Bf16>(set.kernels, *pool, random);
    check_linear<float>(set.kernels, *pool, random);
    check_stack<Bf16>(set.kernels, pool, random);
    check_stack<float>(set.kernels, pool, random);
    for (int table = 0; table < 3; ++table) check_sampler(set.kernels, set.sampler, random);
}

void run_together(std::shared_ptr<Pool> pool, const std::vector<std::unique_ptr<Set>>& sets, double seconds) {
    auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::vector<std::thread> threads;
    for (uint32_t seed = 1; seed <= 3; ++seed)
        threads.emplace_back([&, seed] {
            Random random(seed);
            for (size_t round = seed; round < 5 || std::chrono::steady_clock::now() < end; ++round) {
                check_pool(*pool, 20, seed);
                check(*sets[round % sets.size()], pool, random);
            }
        });
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

}  // namespace specserve

using namespace specserve;

int main(int argc, char** argv) {
    double seconds = argc > 1 ? std::atof(argv[1]) : 2;
    auto pool = std::make_shared<Pool>(3);
    std::vector<std::unique_ptr<Set>> sets;
    std::string names;
    for (const std::string& name : instruction_sets()) {
        sets.push_back(std::make_unique<Set>(kernels_for(name), pool));
        names += " " + name;
    }
    Random random(7);
    for (const std::unique_ptr<Set>& set : sets)
        for (int round = 0; round < 8; ++round) check(*set, pool, random);
    run_together(pool, sets, seconds);
    std::printf("stress: ok with%s\n", names.c_str());
    return 0;
}
