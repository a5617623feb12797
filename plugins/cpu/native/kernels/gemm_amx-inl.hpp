// GEMM of bfloat16, and of quantised inputs, by AMX tiles: sixteen K groups of a panel have the memory layout of a
// tile. Included after gemm-inl.hpp and a `Tiles` class.
//
// Each output is one chain over blocks of sixteen K groups, first to last, in its own accumulator, whatever rows and
// panels share the tiles. A short last block is copied and padded with zeros: a full tile load would read a neighbour's
// numbers, and 0 * NaN is NaN.

constexpr int kTile = 16;  // rows of a tile, and K groups

template <>
constexpr int kDirectRows<Bf16> = 0;  // tiles are loaded from memory

// Inputs of a row in a tile: 64 bytes.
template <typename S>
constexpr int kTileInputs = kTile * kVnni<S>;

template <int C, int A, int B>
INLINE void dot_tiles(Tiles& tiles, const Bf16*) {
    tiles.template dot<C, A, B>();
}
template <int C, int A, int B>
INLINE void dot_tiles(Tiles& tiles, const QuantizedInput*) {
    tiles.template dot_bytes<C, A, B>();
}

// Accumulators of R row tiles times P panels are in tile registers 0 to 3, inputs of type S in 4 and 5, weights in 6
// and 7 in turn.
template <typename S, int R, int P>
struct TileBlock {
    static_assert(R * P <= 4);

    template <int p, typename Weights>
    INLINE void dot_panels(Tiles& tiles, const S* x, Weights w, int k_group) {
        tiles.template load<6 + p % 2>(w.at(p, k_group), 64);
        dot_tiles<p, 4, 6 + p % 2>(tiles, x);
        if constexpr (R == 2) dot_tiles<2 + p, 5, 6 + p % 2>(tiles, x);
        if constexpr (p + 1 < P) dot_panels<p + 1>(tiles, x, w, k_group);
    }

    // One block of inputs, with the sixteen K groups from k_group on.
    template <typename Weights>
    INLINE void accumulate(Tiles& tiles, const S* x, ptrdiff_t x_stride, Weights w, int k_group) {
        ptrdiff_t bytes = x_stride * static_cast<ptrdiff_t>(sizeof(S));
        tiles.template load<4>(x, bytes);
        if constexpr (R == 2) tiles.template load<5>(x + kTile * x_stride, bytes);
        dot_panels<0>(tiles, x, w, k_group);
    }

    template <typename Weights>
    INLINE void prefetch(Weights w, int k_group) {
        for (int p = 0; p < P; ++p)
            for (int line = 0; line < kTile; ++line)
                __builtin_prefetch(w.at(p, k_group) + line * kLanes * kVnni<S>, 0, 2);
    }

    template <int p>
    INLINE void clear(Tiles& tiles) {
        tiles.template clear<p>();
        if constexpr (R == 2) tiles.template clear<2 + p>();
        if constexpr (p + 1 < P) clear<p + 1>(tiles);
    }

    template <int p, typename Sum>
    INLINE void store(Tiles& tiles, Sum* out, ptrdiff_t out_stride) {
        ptrdiff_t bytes = out_stride * static_cast<ptrdiff_t>(sizeof(Sum));
        tiles.template store<p>(out + p * kLanes, bytes);
        if constexpr (R == 2) tiles.template store<2 + p>(out + kTile * out_stride + p * kLanes, bytes);
        if constexpr (p + 1 < P) store<p + 1>(tiles, out, out_stride);
    }
};

// The short last K block of the inputs, padded: the first `size` of a row are real.
template <typename S>
INLINE void pad_inputs(const S* x, ptrdiff_t x_stride, int rows, int size, S* out) {
    for (int r = 0; r < rows; ++r, out += kTileInputs<S>) {
        for (int i = 0; i < size; ++i) out[i] = x[r * x_stride + i];
        for (int i = size; i < kTileInputs<S>; ++i) out[i] = S{0};
    }
}

// The microkernel: P panels times the rows of R tiles. x_tail: the padded last K block, or null; next: P panels that
// are prefetched if `prefetches`.
template <int R, int P, typename S, typename Weights, typename Sum>
static void tile_microkernel(Tiles& tiles, const S* x, Weights w, const S* x_tail, Weights next, bool prefetches,
                             Sum* out, RowStrides strides, int k_groups) {
    using Block = TileBlock<S, R, P>;
    using W = std::remove_cvref_t<decltype(*w.at(0, 0))>;
    constexpr int kTileSize = kTileInputs<S> * kLanes;
    int full_blocks = k_groups / kTile;
    Block::template clear<0>(tiles);
    for (int b = 0; b < full_blocks; ++b) {
        if (prefetches) Block::prefetch(next, b * kTile);
        Block::accumulate(tiles, x + b * kTileInputs<S>, strides.x, w, b * kTile);
    }
    if (x_tail) {
        alignas(64) W w_tail[P * kTileSize];
        size_t bytes = static_cast<size_t>(k_groups % kTile) * kLanes * kVnni<S> * sizeof(W);
        for (int p = 0; p < P; ++p) {
            char* to = reinterpret_cast<char*>(w_tail + p * kTileSize);
            __builtin_memcpy(to, w.at(p, full_blocks * kTile), bytes);
            __builtin_memset(to + bytes, 0, kTileSize * sizeof(W) - bytes);
        }
        Block::accumulate(tiles, x_tail, kTileInputs<S>, Panels<S, W>{w_tail, kTileSize}, 0);
    }
    Block::template store<0>(tiles, out, strides.out);
}

// What is prefetched while a panel is multiplied: the panels behind it, and `next` behind the last; the same panel of
// `next`; nothing.
enum class Ahead { kFollowing, kNext, kNothing };

// The weights of one GEMM.
template <typename Weights>
struct TileWeights {
    Weights w, next;
    int panels, k_groups;
    Ahead ahead;

    Weights prefetch_from(int panel, int width) const {
        if (ahead == Ahead::kNext) return next.from(panel);
        return panel + width < panels ? w.from(panel + width) : next;
    }
};

// Panels from p on, P at a time, while there are as many; returns the first that remains.
template <int R, int P, typename S, typename Weights, typename Sum>
INLINE int tile_panels(Tiles& tiles, int p, const TileWeights<Weights>& weights, const S* x, const S* x_tail, Sum* out,
                       RowStrides strides) {
    for (; p + P <= weights.panels; p += P) {
        Weights next = weights.prefetch_from(p, P);
        bool prefetches = weights.ahead != Ahead::kNothing && next.at(0, 0);
        tile_microkernel<R, P>(tiles, x, weights.w.from(p), x_tail, next, prefetches, out + p * kLanes, strides,
                               weights.k_groups);
    }
    return p;
}

// Up to two tiles of rows times all panels.
template <typename S, typename Weights, typename Sum>
INLINE void tile_rows(Tiles& tiles, const S* x, int rows, const TileWeights<Weights>& weights, Sum* out,
                      RowStrides strides) {
    alignas(64) S padded[2 * kTile * kTileInputs<S>];
    int tail = weights.k_groups % kTile * kVnni<S>, p = 0;
    if (tail) pad_inputs(x + weights.k_groups * kVnni<S> - tail, strides.x, rows, tail, padded);
    const S* x_tail = tail ? padded : nullptr;
    if (rows > kTile) {
        p = tile_panels<2, 2>(tiles, p, weights, x, x_tail, out, strides);
        tile_panels<2, 1>(tiles, p, weights, x, x_tail, out, strides);
    } else {
        p = tile_panels<1, 4>(tiles, p, weights, x, x_tail, out, strides);
        p = tile_panels<1, 2>(tiles, p, weights, x, x_tail, out, strides);
        tile_panels<1, 1>(tiles, p, weights, x, x_tail, out, strides);
    }
}

// Only the first rows prefetch: later ones find the weights in the cache.
template <typename Weights, typename S, typename Sum>
INLINE void gemm_tiles(const S* x, int rows, TileWeights<Weights> weights, Sum* out, RowStrides strides) {
    constexpr uint8_t kFull = kTile;
    Tiles& tiles = tiles_of_thread;
    for (int r = 0; r < rows; r += 2 * kTile) {
        int count = rows - r < 2 * kTile ? rows - r : 2 * kTile;
        uint8_t one = static_cast<uint8_t>(count < kTile ? count : kTile), two = static_cast<uint8_t>(count - one);
        if (two)
            tiles.configure({one, one, two, two, one, two, kFull, kFull});
        else
            tiles.configure({one, one, one, one, one, one, kFull, kFull});
        tile_rows(tiles, x + r * strides.x, count, weights, out + r * strides.out, strides);
        weights.ahead = Ahead::kNothing;
    }
}

template <>
void gemm(const Bf16* x, int rows, Panels<Bf16> w, int panels, int k_groups, float* out, RowStrides strides,
          Panels<Bf16> next, PagesAhead*) {
    gemm_tiles<Panels<Bf16>>(x, rows, {w, next, panels, k_groups, Ahead::kFollowing}, out, strides);
}

template <>
void gemm(const QuantizedInput* x, int rows, Int8Panels w, int panels, int k_groups, int32_t* out, RowStrides strides,
          Int8Panels next, PagesAhead*) {
    gemm_tiles<Int8Panels>(x, rows, {w, next, panels, k_groups, Ahead::kFollowing}, out, strides);
}

template <>
void gemm(const Bf16* x, int rows, GateUpPanels<Bf16> w, int panels, int k_groups, float* out, RowStrides strides,
          GateUpPanels<Bf16> next, PagesAhead*) {
    Panels<Bf16> up{w.at(w.num_gate, 0), w.gate.stride};
    gemm<Bf16>(x, rows, w.gate, w.num_gate, k_groups, out, strides, up);
    gemm<Bf16>(x, rows, up, panels - w.num_gate, k_groups, out + w.num_gate * kLanes, strides, next.gate);
}
