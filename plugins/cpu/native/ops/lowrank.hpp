// Low-rank additions to linear maps (LoRA; Hu et al., 2021): what an adapter adds to which projection, and to which
// rows.
#pragma once

#include <vector>

#include "kernels/kernel_table.hpp"

namespace specserve {

constexpr int kMostRank = 256;

// Adds (x down^T) up^T to the outputs from `first` on; both products are rounded as tensors of their own would be.
template <typename S>
struct LowRankPart {
    Linear<S> down, up;
    int first;
};

// What an adapter adds to one projection; a fused one has parts of its own outputs.
template <typename S>
using LowRank = std::vector<LowRankPart<S>>;

template <typename S>
struct AdapterLayer {
    LowRank<S> qkv, o, gate_up, down;
};

template <typename S>
struct Adapter {
    std::vector<AdapterLayer<S>> layers;
};

// Rows [begin, end) of a batch are under this adapter.
template <typename S>
struct Segment {
    int begin, end;
    const Adapter<S>* adapter;
};

constexpr int kLowRankRows = 16;  // at a time

template <typename S>
void add_low_rank(const Table<S>& table, const LowRank<S>& parts, Rows<const S> x, Rows<S> out) {
    alignas(64) S reduced[kLowRankRows * kMostRank];
    for (const LowRankPart<S>& part : parts) {
        ptrdiff_t rank = part.down.outs;
        for (int r = 0; r < x.count; r += kLowRankRows) {
            int rows = x.count - r < kLowRankRows ? x.count - r : kLowRankRows;
            table.store(part.down, {x.at + r * x.stride, x.stride, rows}, {0, part.down.num_panels()},
                        {reduced, rank, rows});
            table.add(part.up, {reduced, rank, rows}, {0, part.up.num_panels()},
                      {out.at + r * out.stride + part.first, out.stride, rows});
        }
    }
}

}  // namespace specserve
