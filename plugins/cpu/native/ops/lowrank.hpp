// LoRA (Hu et al., 2021): the low-rank terms that adapters add to projections, and the rows they apply to.
#pragma once

#include <vector>

#include "kernels/kernel_table.hpp"

namespace specserve {

constexpr int kMaxRank = 256;
constexpr int kLowRankRows = 16;  // rows per task and per step of `add_low_rank`

// out[first_output:] += (x down^T) up^T. Both products are rounded, as separate tensors would be.
template <typename S>
struct LowRankPart {
    Linear<S> down, up;
    int first_output;
};

// All parts of one projection: a fused one (qkv, gate_up) has a part for each of its outputs.
template <typename S>
using LowRank = std::vector<LowRankPart<S>>;

template <typename S>
struct ExpertLowRank {
    LowRank<S> gate_up, down;
};

template <typename S>
struct AdapterLayer {
    LowRank<S> qkv, o, gate_up, down;
    LowRank<S> router = {}, gate = {};
    std::vector<ExpertLowRank<S>> experts = {};  // up to the last one that has parts

    const ExpertLowRank<S>& expert(int index) const {
        static const ExpertLowRank<S> none;
        return static_cast<size_t>(index) < experts.size() ? experts[static_cast<size_t>(index)] : none;
    }
};

template <typename S>
struct Adapter {
    std::vector<AdapterLayer<S>> layers;

    // Null if it has no parts there.
    const AdapterLayer<S>* layer(int index) const {
        return static_cast<size_t>(index) < layers.size() ? &layers[static_cast<size_t>(index)] : nullptr;
    }
};

// Rows [begin, end) of a batch use this adapter.
template <typename S>
struct AdapterSegment {
    int begin, end;
    const Adapter<S>* adapter;
};

template <typename S>
void add_low_rank(const KernelTable<S>& table, const LowRank<S>& parts, Rows<const S> x, Rows<S> out) {
    alignas(64) S reduced[kLowRankRows * kMaxRank];
    for (const LowRankPart<S>& part : parts) {
        ptrdiff_t rank = part.down.out_features;
        for (int r = 0; r < x.count; r += kLowRankRows) {
            int rows = x.count - r < kLowRankRows ? x.count - r : kLowRankRows;
            table.linear(part.down, {{x.data + r * x.stride, x.stride, rows}}, {0, part.down.num_panels()},
                         {reduced, rank, rows});
            table.linear_add(part.up, {{reduced, rank, rows}}, {0, part.up.num_panels()},
                             {out.data + r * out.stride + part.first_output, out.stride, rows});
        }
    }
}

}  // namespace specserve
