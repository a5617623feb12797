// A stress test for the sanitizers: random shapes on every supported instruction set, in buffers without slack.
//
// Rows are compared bit by bit with the same rows alone, and with a plain reference. Prints "stress: ok" on success.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "runtime/isa.hpp"
#include "stress/stress.hpp"

namespace specserve {

void require(bool condition, const std::string& message) {
    if (condition) return;
    std::fprintf(stderr, "stress: %s\n", message.c_str());
    std::exit(1);
}

namespace {

// The kernels of one instruction set, with a sampler and a memory of delta nets that all threads share.
struct Target {
    Target(const Kernels& k, std::shared_ptr<ThreadPool> pool)
        : kernels(k), sampler(k.sampling, pool), workspace(std::make_shared<DeltaWorkspace>(pool)) {}

    Kernels kernels;
    Sampler sampler;
    std::shared_ptr<DeltaWorkspace> workspace;
};

void check(Target& target, std::shared_ptr<ThreadPool> pool, Random& random) {
    check_linear<Bf16>(target.kernels, *pool, random);
    check_linear<float>(target.kernels, *pool, random);
    check_decoder_stack<Bf16>(target.kernels, pool, random);
    check_decoder_stack<float>(target.kernels, pool, random);
    check_draft_chains<Bf16>(target.kernels, pool, random);
    check_draft_chains<float>(target.kernels, pool, random);
    check_block_head<Bf16>(target.kernels, pool, random);
    check_block_head<float>(target.kernels, pool, random);
    check_gated_delta_net<Bf16>(target.kernels, target.workspace, random);
    check_gated_delta_net<float>(target.kernels, target.workspace, random);
    check_short_conv<Bf16>(target.kernels, *pool, random);
    check_short_conv<float>(target.kernels, *pool, random);
    for (int repeat = 0; repeat < 3; ++repeat) check_sampler(target.kernels, target.sampler, random);
}

void run_concurrently(std::shared_ptr<ThreadPool> pool, const std::vector<std::unique_ptr<Target>>& targets,
                      double seconds) {
    auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::vector<std::thread> threads;
    for (uint32_t seed = 1; seed <= 3; ++seed)
        threads.emplace_back([&, seed] {
            Random random(seed);
            for (size_t round = seed; round < 5 || std::chrono::steady_clock::now() < end; ++round) {
                check_thread_pool(*pool, 20, seed);
                check(*targets[round % targets.size()], pool, random);
            }
        });
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

}  // namespace specserve

using namespace specserve;

int main(int argc, char** argv) {
    double seconds = argc > 1 ? std::atof(argv[1]) : 2;
    auto pool = std::make_shared<ThreadPool>(3);
    std::vector<std::unique_ptr<Target>> targets;
    std::string names;
    for (const std::string& name : instruction_sets()) {
        targets.push_back(std::make_unique<Target>(kernels_for(name), pool));
        names += " " + name;
    }
    Random random(7);
    for (const std::unique_ptr<Target>& target : targets)
        for (int round = 0; round < 8; ++round) check(*target, pool, random);
    run_concurrently(pool, targets, seconds);
    std::printf("stress: ok with%s\n", names.c_str());
    return 0;
}
