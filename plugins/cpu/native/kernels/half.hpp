// Numbers of 16 bits, one at a time: IEEE 754 binary16, and the model's dtype.
#pragma once

#include <cstdint>
#include <cstring>

namespace specserve {

inline float half_to_float(uint16_t half) {
    uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, exponent = (half >> 10) & 31u, fraction = half & 1023u;
    if (exponent == 0) {  // zero, or fraction * 2^-24
        float size = static_cast<float>(fraction) * 0x1p-24f;
        return sign ? -size : size;
    }
    uint32_t bits = sign | ((exponent == 31 ? 255u : exponent + 112u) << 23) | (fraction << 13);
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

// x as a number of S, rounded to the nearest, of two to the even one.
template <typename S>
S rounded(float x) {
    if constexpr (sizeof(S) == 2) {
        uint32_t bits;
        std::memcpy(&bits, &x, 4);
        if (x != x) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
        return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
    } else {
        return x;
    }
}

}  // namespace specserve
