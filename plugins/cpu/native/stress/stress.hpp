// The checks of the stress test, and the random numbers and comparisons that they share.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "runtime/thread_pool.hpp"
#include "ops/gated_delta_net.hpp"
#include "ops/sampler.hpp"

namespace specserve {

using Random = std::mt19937;

// Each check takes random shapes and reports failures by `require`.
template <typename S>
void check_linear(const Kernels& kernels, ThreadPool& pool, Random& random);
template <typename S>
void check_decoder_stack(const Kernels& kernels, std::shared_ptr<ThreadPool> pool, Random& random);
template <typename S>
void check_draft_chains(const Kernels& kernels, std::shared_ptr<ThreadPool> pool, Random& random);
template <typename S>
void check_block_head(const Kernels& kernels, std::shared_ptr<ThreadPool> pool, Random& random);
template <typename S>
void check_gated_delta_net(const Kernels& kernels, std::shared_ptr<DeltaWorkspace> workspace, Random& random);
template <typename S>
void check_short_conv(const Kernels& kernels, ThreadPool& pool, Random& random);
void check_thread_pool(ThreadPool& pool, int jobs, uint32_t seed);
void check_sampler(const Kernels& kernels, Sampler& sampler, Random& random);

// Exits with `message` unless `condition` holds.
void require(bool condition, const std::string& message);

// Adds bytes of results to the digest of this thread.
void record_bytes(const void* bytes, size_t count);
template <typename T>
void record(const T* results, size_t count) {
    record_bytes(results, count * sizeof(T));
}

// Whether linear maps of S are chains of fused multiply-adds of float32, in the order of the inputs.
template <typename S>
bool fuses_products(const Kernels& kernels) {
    std::string name = kernels.name;
    return name != "portable" &&
           (sizeof(S) == 4 || (name.find("bf16") == std::string::npos && name.find("amx") == std::string::npos));
}

// A random integer in [low, high].
inline int between(Random& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

template <typename S>
S to_number(float x) {
    if constexpr (sizeof(S) == 4) return x;
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    S narrow;
    uint16_t upper = static_cast<uint16_t>(bits >> 16);
    std::memcpy(&narrow, &upper, sizeof narrow);
    return narrow;
}

inline double to_double(float x) { return x; }
inline double to_double(Bf16 x) {
    uint32_t bits = uint32_t{x.bits} << 16;
    float wide;
    std::memcpy(&wide, &bits, 4);
    return wide;
}

template <typename S>
std::vector<S> random_numbers(Random& random, size_t count) {
    std::normal_distribution<float> normal;
    std::vector<S> numbers(count);
    for (S& x : numbers) x = to_number<S>(normal(random));
    return numbers;
}

template <typename S>
bool same_bits(const S* a, const S* b, size_t count) {
    return count == 0 || std::memcmp(a, b, count * sizeof(S)) == 0;
}

}  // namespace specserve
