// GEMM: rows times packed panels, accumulated in float32, or in int32 where both are integers. Panels are
// [K group][16 outputs][kVnni inputs].
//
// Each output is one chain of dot instructions over the K groups, first to last. Blocking decides which accumulators
// share the registers and never changes the order within one: an output's bits do not depend on the other rows.

template <int step>
INLINE Vec load_weights(const float* p) {
    return load(p);
}
template <int step>
INLINE Vec load_weights(const Int8<float>* p) {
    return load_int8(&p->value);
}
INLINE void widen_weights(const Int8<float>* p, float* out) { store(out, load_int8(&p->value)); }
template <int step>
INLINE Vec broadcast_input(const float* p) {
    return splat(*p);
}
INLINE Vec dot(Vec sum, Vec x, Vec w) { return fma(x, w, sum); }

template <typename S>
constexpr int kDotSteps = sizeof(S) == 2 ? kBf16DotSteps : 1;
template <>
constexpr int kDotSteps<QuantizedInput> = kInt8DotSteps;

// The vector of sums that `out` points to.
INLINE Vec zero_sums(const float*) { return zeros(); }
INLINE IntVec zero_sums(const int32_t*) { return zero_ints(); }
template <typename Sum>
using SumVec = decltype(zero_sums(static_cast<const Sum*>(nullptr)));

// Elements from one row to the next.
struct RowStrides {
    ptrdiff_t x, out;
};

// GEMM reads weights through a view. `at(panel, k_group)` is the address of a K group's weights, and kContiguousGroups
// groups are contiguous from there; `from(panel, k_group)` is the view that starts there. They are prefetched with
// kLocality, as __builtin_prefetch has it: 3 for the L1 cache, 2 for the L2 cache.

// Panels at a constant distance, of weights of type W.
template <typename S, typename W = S>
struct Panels {
    static constexpr int kContiguousGroups = kUnlimited, kLocality = 2;
    const W* data;
    ptrdiff_t stride;  // elements from one panel to the next

    const W* at(int panel, int k_group) const { return data + panel * stride + ptrdiff_t{k_group} * kLanes * kVnni<S>; }
    Panels from(int panel, int k_group = 0) const { return {at(panel, k_group), stride}; }
};

// Integers for quantised inputs.
using Int8Panels = Panels<QuantizedInput, Int8<QuantizedInput>>;

// `num_gate` gate panels, then as many up panels; `gap` is the number of elements between the two ranges.
template <typename S>
struct GateUpPanels {
    static constexpr int kContiguousGroups = kUnlimited, kLocality = 2;
    Panels<S> gate;
    int num_gate;
    ptrdiff_t gap;

    const S* at(int panel, int k_group) const { return gate.at(panel, k_group) + (panel < num_gate ? 0 : gap); }
    GateUpPanels from(int panel, int k_group) const { return {gate.from(panel, k_group), num_gate - panel, gap}; }
};

// What a block of rows prefetches: the first `panels` panels of a view, and in place of others pages, if there are any.
template <typename Weights>
struct Prefetch {
    Weights weights;
    int panels;
    PagesAhead* pages = nullptr;
};

// Before loops over accumulators; the vec files of some sets define it: there they would stay in memory else.
#ifndef UNROLLED
#define UNROLLED
#endif

// sums += x * w for one K group of R rows and P panels. Of weights and inputs, those that are fewer are kept in
// registers: with all of both, sums would leave them.
template <typename S, int step, int R, int P, typename V, typename W>
INLINE void add_k_group(V (&sums)[R][P], const S* x, ptrdiff_t x_stride, const W* const (&panels)[P], ptrdiff_t at) {
    if constexpr (R <= P) {
        decltype(broadcast_input<step>(x)) inputs[R];
        UNROLLED for (int r = 0; r < R; ++r) inputs[r] = broadcast_input<step>(x + r * x_stride);
        UNROLLED for (int p = 0; p < P; ++p) {
            auto weights = load_weights<step>(panels[p] + at);
            UNROLLED for (int r = 0; r < R; ++r) sums[r][p] = dot(sums[r][p], inputs[r], weights);
        }
    } else {
        decltype(load_weights<step>(panels[0])) weights[P];
        UNROLLED for (int p = 0; p < P; ++p) weights[p] = load_weights<step>(panels[p] + at);
        UNROLLED for (int r = 0; r < R; ++r) {
            auto input = broadcast_input<step>(x + r * x_stride);
            UNROLLED for (int p = 0; p < P; ++p) sums[r][p] = dot(sums[r][p], input, weights[p]);
        }
    }
    if constexpr (step + 1 < kDotSteps<S>) {
        // read again: where the compiler kept the inputs in registers, sums would have to leave theirs
        if constexpr (kFewRegisters && (R > 4 || sizeof(W) == 1)) __asm__("" : "+r"(x));
        add_k_group<S, step + 1>(sums, x, x_stride, panels, at);
    }
}

// Blocks of so many rows, of linear maps whose panels have a cache line for each K group, may read ahead.
template <typename S, typename Weights, int R>
constexpr bool kMayReadAhead =
    R >= 4 && Weights::kContiguousGroups == kUnlimited && kLanes * kVnni<S> * sizeof(*Weights().at(0, 0)) == 64;

// The microkernel: out[R][16 * P] = x * w, added to `out` unless `first_k` (the first block of K). kReadsAhead: its
// last panel prefetches lines of `next.pages` while there are some. Otherwise it is the loop that it would be without
// them.
//
// Software prefetch: the arithmetic between two loads is too long for the processor to run ahead by itself, and the
// hardware prefetcher stops at the end of a panel.
template <typename S, typename Weights, int R, int P, bool kReadsAhead, typename Sum>
static void microkernel(const S* x, Weights w, Sum* out, RowStrides strides, int k_groups, bool first_k,
                        Prefetch<Weights> next) {
    SumVec<Sum> sums[R][P];
    UNROLLED for (int r = 0; r < R; ++r) {
        UNROLLED for (int p = 0; p < P; ++p) {
            sums[r][p] = first_k ? zero_sums(out) : load(out + r * strides.out + p * kLanes);
        }
    }
    for (int g = 0; g < k_groups;) {
        decltype(w.at(0, 0)) panels[P], ahead[P];
        UNROLLED for (int p = 0; p < P; ++p) {
            panels[p] = w.at(p, g);
            ahead[p] = p < next.panels ? next.weights.at(p, g) : panels[p];
        }
        int end = k_groups - g < Weights::kContiguousGroups ? k_groups : g + Weights::kContiguousGroups;
        if constexpr (kReadsAhead) {
            if (!next.pages->is_done()) {
                int lines = end - g;
                ahead[P - 1] = reinterpret_cast<decltype(w.at(0, 0))>(next.pages->take(lines));
                end = g + lines;
            }
        }
        for (ptrdiff_t i = 0; g < end; ++g, i += kLanes * kVnni<S>) {
            UNROLLED for (int p = 0; p < P; ++p) __builtin_prefetch(ahead[p] + i, 0, Weights::kLocality);
            add_k_group<S, 0>(sums, x + ptrdiff_t{g} * kVnni<S>, strides.x, panels, i);
        }
    }
    UNROLLED for (int r = 0; r < R; ++r) {
        UNROLLED for (int p = 0; p < P; ++p) store(out + r * strides.out + p * kLanes, sums[r][p]);
    }
}

#ifdef SPECSERVE_ROW_PAIRS
#include "kernels/gemm_pairs-inl.hpp"
#endif

// Dispatch to the microkernel of rows x panels.
template <typename S, typename Weights, int R, int P, typename Sum>
INLINE void dispatch_panels(int panels, const S* x, Weights w, Sum* out, RowStrides strides, int k_groups, bool first_k,
                            Prefetch<Weights> next) {
    if constexpr (P > 1) {
        if (panels < P)
            return dispatch_panels<S, Weights, R, P - 1>(panels, x, w, out, strides, k_groups, first_k, next);
    }
#ifdef SPECSERVE_ROW_PAIRS
    if constexpr (R > 1 && kMultipliesPairs<S>)
        return multiply_row_pairs<S, Weights, R, P>(x, w, out, strides, k_groups, first_k, next);
#endif
    if constexpr (kMayReadAhead<S, Weights, R>) {
        if (next.pages && next.panels < P && !next.pages->is_done())
            return microkernel<S, Weights, R, P, true>(x, w, out, strides, k_groups, first_k, next);
    }
    microkernel<S, Weights, R, P, false>(x, w, out, strides, k_groups, first_k, next);
}
template <typename S, typename Weights, int R = kMaxRowBlock, typename Sum>
INLINE void dispatch_block(int rows, int panels, const S* x, Weights w, Sum* out, RowStrides strides, int k_groups,
                           bool first_k, Prefetch<Weights> next) {
    if constexpr (R > 1) {
        if (rows < R)
            return dispatch_block<S, Weights, R - 1>(rows, panels, x, w, out, strides, k_groups, first_k, next);
    }
    dispatch_panels<S, Weights, R, max_panel_block(R)>(panels, x, w, out, strides, k_groups, first_k, next);
}

// The number of panels in the next block, so that all blocks are about as wide: with few accumulators, the latency of
// each dot instruction shows.
INLINE int panel_block(int rows, int panels) { return ceil_div(panels, ceil_div(panels, max_panel_block(rows))); }

constexpr int kBlockRows = 48;  // rows and panels whose sums a task holds on its stack
constexpr int kBlockPanels = 8;

// Up to this many rows are multiplied by 8-bit weights that are widened in registers, again for each block of rows. For
// more rows the weights are widened in memory first.
template <typename S>
constexpr int kDirectRows = sizeof(S) == 2 ? kDirectRowsOfBf16 : kUnlimited;

// Inputs per block of K when there are many rows: the weights in use stay in the L1 cache.
template <typename S>
constexpr int kBlockK = sizeof(S) == 1 ? 768 : 384;

// out[rows][16 * panels] = x * w. `next`: the next weights, prefetched up to the width of the last
// panel block.
//
// Each block of rows prefetches a part of the next weights: the processor drops prefetches beyond its line fill
// buffers.
template <typename S, typename Weights, typename Sum>
static void gemm(const S* x, int rows, Weights w, int panels, int k_groups, Sum* out, RowStrides strides, Weights next,
                 PagesAhead* pages = nullptr) {
    int row_blocks = ceil_div(rows, kMaxRowBlock), block_rows = ceil_div(rows, row_blocks);
    int block_k = row_blocks == 1 ? k_groups : kBlockK<S> / kVnni<S>;
    for (int done = 0, width; done < panels; done += width) {
        width = panel_block(block_rows, panels - done);
        int prefetch_panels = ceil_div(width, row_blocks);
        for (int g = 0; g < k_groups; g += block_k) {
            int num_groups = k_groups - g < block_k ? k_groups - g : block_k;
            Weights block = w.from(done, g), later = w.from(done, g + block_k);
            if (g + block_k >= k_groups) later = done + width < panels ? w.from(done + width, 0) : next;
            for (int r = 0, fetched = 0; r < rows; r += block_rows, fetched += prefetch_panels)
                dispatch_block<S>(
                    rows - r < block_rows ? rows - r : block_rows, width, x + r * strides.x + ptrdiff_t{g} * kVnni<S>,
                    block, out + r * strides.out + done * kLanes, strides, num_groups, g == 0,
                    Prefetch<Weights>{later.from(fetched, 0), fetched < width ? prefetch_panels : 0, pages});
        }
    }
}

// GEMM over panels in the pages of a cache; `next`: as many panels, to be prefetched. scratch: as large as the panels,
// for instruction sets that need them contiguous.
template <typename S, typename Weights>
static void gemm_paged(const S* x, int rows, Weights w, Weights next, int panels, int k_groups, float* out,
                       RowStrides strides, S* /*scratch*/) {
    int row_blocks = ceil_div(rows, kMaxRowBlock), block_rows = ceil_div(rows, row_blocks);
    for (int done = 0, width; done < panels; done += width) {
        width = panel_block(block_rows, panels - done);
        int prefetch_panels = ceil_div(width, row_blocks);
        for (int r = 0, fetched = 0; r < rows; r += block_rows, fetched += prefetch_panels)
            dispatch_block<S>(rows - r < block_rows ? rows - r : block_rows, width, x + r * strides.x, w.from(done),
                              out + r * strides.out + done * kLanes, strides, k_groups, true,
                              Prefetch<Weights>{next.from(done + fetched), fetched < width ? prefetch_panels : 0});
    }
}
