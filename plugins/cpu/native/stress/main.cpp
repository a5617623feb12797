// A stress test for the sanitizers: random shapes on every supported instruction set, in buffers without slack.
//
// Rows are compared bit by bit with the same rows alone, and with a plain reference; instruction sets that compute
// alike are compared with each other. Prints "stress: ok" on success, and a digest of what these sets computed.
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

thread_local uint64_t digest;

}  // namespace

void record_bytes(const void* bytes, size_t count) {
    constexpr uint64_t kFnvPrime = 0x100000001b3;
    for (size_t i = 0; i < count; ++i) digest = (digest ^ static_cast<const uint8_t*>(bytes)[i]) * kFnvPrime;
}

namespace {

// They do the same operations in the same order.
bool computes_alike(const std::string& name) {
    for (const char* each : {"avx512_vnni", "avx512", "avx2_vnni", "avx2", "neon_i8mm", "neon_dot", "neon"})
        if (name == each) return true;
    return false;
}

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

// The same shapes and numbers for each.
void check_all(const std::vector<std::unique_ptr<Target>>& targets, std::shared_ptr<ThreadPool> pool) {
    std::string first_alike;
    uint64_t expected = 0;
    for (const std::unique_ptr<Target>& target : targets) {
        Random random(7);
        digest = 0;
        for (int round = 0; round < 8; ++round) check(*target, pool, random);
        std::string name = target->kernels.name;
        if (!computes_alike(name)) continue;
        if (first_alike.empty()) {
            first_alike = name;
            expected = digest;
            std::printf("stress: bits %016llx of %s\n", static_cast<unsigned long long>(digest), name.c_str());
        }
        require(digest == expected, name + ": other bits than " + first_alike);
    }
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
    check_all(targets, pool);
    run_concurrently(pool, targets, seconds);
    std::printf("stress: ok with%s\n", names.c_str());
    return 0;
}
