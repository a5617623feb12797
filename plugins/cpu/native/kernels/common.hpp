// Types and constants that all instruction sets share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#ifdef SPECSERVE_NO_ALWAYS_INLINE  // sanitizer builds: instrumented code takes minutes to compile if it is always
                                   // inlined
#define ALWAYS_INLINE inline
#else
#define ALWAYS_INLINE inline __attribute__((always_inline))
#endif
#define INLINE static ALWAYS_INLINE

namespace specserve {

struct Bf16 {
    uint16_t bits;
};

// A weight quantised to 8 bits, for inputs of type S.
template <typename S>
struct Int8 {
    int8_t value;
};

// An input of a linear map quantised to 8 bits. On x86 128 is added: its dot instructions take one factor without sign.
struct QuantizedInput {
    uint8_t value;
};
constexpr int kInputOffset = 128;

// The inputs of one K group, as a dot instruction of bytes takes them.
INLINE int four_inputs(const QuantizedInput* p) {
    int four;
    __builtin_memcpy(&four, p, 4);
    return four;
}

constexpr int kLanes = 16;  // lanes of a vector, and outputs of a packed panel, on every processor
constexpr int kUnlimited = 1 << 30;
constexpr int kSegmentKeys = 128;  // keys that attention processes at a time; partial results merge in this granularity

// VNNI factor: consecutive inputs that one dot instruction takes. A K group of a packed panel has this many per output.
template <typename S>
constexpr int kVnni = sizeof(S) == 2 ? 2 : 1;
template <>
inline constexpr int kVnni<QuantizedInput> = 4;

INLINE constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

}  // namespace specserve
