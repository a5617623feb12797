#include "runtime/quantize.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

namespace specserve {

namespace {

constexpr float kLargest = 127.0f;

float to_float(float x) { return x; }
float to_float(Bf16 x) {
    uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, 4);
    return wide;
}

// The scale of `count` weights; NaN or infinite if one of them is.
template <typename S>
float quantize_group(const S* weight, int count, int8_t* integers) {
    float largest = 0.0f;
    for (int i = 0; i < count; ++i) {
        float size = std::fabs(to_float(weight[i]));
        if (size > largest || std::isnan(size)) largest = size;  // NaN stays: nothing is greater
    }
    float scale = largest / kLargest;
    bool is_zero = scale == 0.0f || !std::isfinite(scale);  // also where the quotient underflows
    for (int i = 0; i < count; ++i)
        integers[i] = is_zero ? int8_t{0} : static_cast<int8_t>(std::lrint(to_float(weight[i]) / scale));
    return scale;
}

}  // namespace

template <typename S>
bool quantize(ThreadPool& pool, const S* weight, int rows, int columns, int group_size, int8_t* integers,
              float* scales) {
    int groups = ceil_div(columns, group_size);
    std::atomic<bool> is_finite{true};
    auto quantize_row = [&](int r) {
        for (int g = 0, begin = 0; g < groups; ++g, begin += group_size) {
            ptrdiff_t at = ptrdiff_t{r} * columns + begin;
            float scale = quantize_group(weight + at, std::min(group_size, columns - begin), integers + at);
            scales[ptrdiff_t{r} * groups + g] = scale;
            if (!std::isfinite(scale)) is_finite.store(false, std::memory_order_relaxed);
        }
    };
    pool.run(1, [&](ThreadPool::Team& team) {
        team.parallel_for_ranges(rows, [&](int begin, int end) {
            for (int r = begin; r < end; ++r) quantize_row(r);
        });
    });
    return is_finite.load();
}

template bool quantize(ThreadPool&, const Bf16*, int, int, int, int8_t*, float*);
template bool quantize(ThreadPool&, const float*, int, int, int, int8_t*, float*);

}  // namespace specserve
