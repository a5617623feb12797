// What the stress program checks, and the random numbers and comparisons that its checks share.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "runtime/thread_pool.hpp"
#include "ops/sampler.hpp"

namespace specserve {

using Random = std::mt19937;

// Each takes random shapes and says what is wrong by `require`.
template <typename S>
void check_linear(const Kernels& kernels, Pool& pool, Random& random);
template <typename S>
void check_stack(const Kernels& kernels, std::shared_ptr<Pool> pool, Random& random);
void check_pool(Pool& pool, int jobs, uint32_t seed);
void check_sampler(const Kernels& kernels, Sampler& sampler, Random& random);

// Ends the program with `what` unless `good`.
void require(bool good, const std::string& what);

inline int between(Random& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

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

inline double value(float x) { return x; }
inline double value(Bf16 x) {
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

}  // namespace specserve
