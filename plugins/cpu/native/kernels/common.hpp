// Types and constants that every instruction set and every driver share.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef SPECSERVE_CALLS  // sanitizers add so much to every access that inlined lanes take minutes to compile
#define ALWAYS_INLINE inline
#else
#define ALWAYS_INLINE inline __attribute__((always_inline))
#endif
#define INLINE static ALWAYS_INLINE

namespace specserve {

struct Bf16 {
    uint16_t bits;
};

constexpr int kLanes = 16;     // outputs of a packed panel, on every processor
constexpr int kSegment = 128;  // keys that are attended together; partial results merge in the order of segments

// Inputs of one group of a packed panel: what one dot instruction takes.
template <typename S>
constexpr int kStep = sizeof(S) == 2 ? 2 : 1;

constexpr int divided_up(int a, int b) { return (a + b - 1) / b; }

}  // namespace specserve
