// What a gated short convolution is made of, and the tokens that it reads.
#pragma once

#include "kernels/common.hpp"

namespace specserve {

template <typename S>
struct ShortConv {
    const float* weight;  // [reach + 1][size], the last for the token itself; null if a layer has none
    const float* bias;    // [size]; or null
    int reach;            // how many tokens before a row it reads
    int size;             // channels
    S* kept;              // [slots][size]: what the cache has of each token

    explicit operator bool() const { return weight; }
};

// Of each row of a batch: its own slot, and those of the tokens before it, the nearest first; negative for none.
struct PrecedingSlots {
    const int64_t* slots;
    const int64_t* before;
    ptrdiff_t stride;  // from one row to the next in `before`: at least the reach
};

struct ChannelRange {
    int begin, end;
};

}  // namespace specserve
