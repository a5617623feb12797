// Rows of bfloat16 times packed panels, by tiles: sixteen groups of a panel are a tile as they lie.
//
// Every output is one chain over blocks of 32 inputs, first to last, in an accumulator of its own; which rows and
// panels share a pass never touches it. The last block is filled with zeros when it is short: a load of whole tiles
// would bring in a neighbour's numbers, and 0 * NaN is NaN. Included after gemm.hpp and a file of tiles, in a lane
// file's namespace.

constexpr int kTile = 16;  // rows of a tile, and groups

// Sums of R tiles of rows times P panels: registers 0 to 3; the rows in 4 and 5, two panels in turn in 6 and 7.
template <int R, int P>
struct TileBlock {
    static_assert(R * P <= 4);

    template <int p>
    INLINE void panels(Tiles& tiles, const Bf16* w, ptrdiff_t panel_stride) {
        tiles.template load<6 + p % 2>(w + p * panel_stride, 64);
        tiles.template dot<p, 4, 6 + p % 2>();
        if constexpr (R == 2) tiles.template dot<2 + p, 5, 6 + p % 2>();
        if constexpr (p + 1 < P) panels<p + 1>(tiles, w, panel_stride);
    }

    // One block of 32 inputs.
    INLINE void step(Tiles& tiles, const Bf16* x, ptrdiff_t x_stride, const Bf16* w, ptrdiff_t panel_stride) {
        ptrdiff_t bytes = x_stride * static_cast<ptrdiff_t>(sizeof(Bf16));
        tiles.template load<4>(x, bytes);
        if constexpr (R == 2) tiles.template load<5>(x + kTile * x_stride, bytes);
        panels<0>(tiles, w, panel_stride);
    }

    // One block of panels that come later.
    INLINE void fetch(const Bf16* w, ptrdiff_t panel_stride) {
        for (int p = 0; p < P; ++p)
            for (int line = 0; line < kTile; ++line) __builtin_prefetch(w + p * panel_stride + line * 2 * kLanes, 0, 2);
    }

    template <int p>
    INLINE void clear(Tiles& tiles) {
        tiles.template clear<p>();
        if constexpr (R == 2) tiles.template clear<2 + p>();
        if constexpr (p + 1 < P) clear<p + 1>(tiles);
    }

    template <int p>
    INLINE void store(Tiles& tiles, float* out, ptrdiff_t out_stride) {
        ptrdiff_t bytes = out_stride * static_cast<ptrdiff_t>(sizeof(float));
        tiles.template store<p>(out + p * kLanes, bytes);
        if constexpr (R == 2) tiles.template store<2 + p>(out + kTile * out_stride + p * kLanes, bytes);
        if constexpr (p + 1 < P) store<p + 1>(tiles, out, out_stride);
    }
};

// The last, short block of the rows: 32 inputs each, zeros behind `left` of them.
INLINE void fill_rows(const Bf16* x, ptrdiff_t x_stride, int rows, int left, Bf16* to) {
    for (int r = 0; r < rows; ++r, to += 2 * kTile) {
        for (int i = 0; i < left; ++i) to[i] = x[r * x_stride + i];
        for (int i = left; i < 2 * kTile; ++i) to[i] = Bf16{0};
    }
}

// P panels for `rows` rows, which fill R tiles; `last`: what `fill_rows` made of them, or null; `next`: P panels to
// fetch, null for none, since the processor computes too long between two loads to run ahead in memory by itself.
template <int R, int P>
static void tile_block(Tiles& tiles, const Bf16* x, Panelled<Bf16> w, const Bf16* last, const Bf16* next, float* out,
                       Extent e, int groups) {
    using Block = TileBlock<R, P>;
    constexpr int kNumbers = kTile * kLanes * 2;
    int whole = groups / kTile;
    Block::template clear<0>(tiles);
    for (int b = 0; b < whole; ++b) {
        if (next) Block::fetch(next + ptrdiff_t{b} * kNumbers, w.stride);
        Block::step(tiles, x + b * 2 * kTile, e.x_stride, w.at + ptrdiff_t{b} * kNumbers, w.stride);
    }
    if (last) {
        alignas(64) Bf16 ends[P * kNumbers];
        size_t bytes = static_cast<size_t>(groups % kTile) * kLanes * 2 * sizeof(Bf16);
        for (int p = 0; p < P; ++p) {
            char* to = reinterpret_cast<char*>(ends + p * kNumbers);
            __builtin_memcpy(to, w.at + p * w.stride + ptrdiff_t{whole} * kNumbers, bytes);
            __builtin_memset(to + bytes, 0, kNumbers * sizeof(Bf16) - bytes);
        }
        Block::step(tiles, last, 2 * kTile, ends, kNumbers);
    }
    Block::template store<0>(tiles, out, e.out_stride);
}

// The panels of one product, and what is fetched while they are multiplied: only for the first rows to come here, who
// find the weights in memory.
struct TileWork {
    Panelled<Bf16> w;
    int panels, groups;
    const Bf16* after;
    bool fetches;

    const Bf16* next(int panel) const { return !fetches ? nullptr : panel < panels ? w.of(panel, 0) : after; }
};

// Panels [p, p + P), and so on in passes of P, while there are as many; returns the first that is left.
template <int R, int P>
INLINE int tile_blocks(Tiles& tiles, int p, const TileWork& work, const Bf16* x, const Bf16* last, float* out,
                       Extent e) {
    for (; p + P <= work.panels; p += P)
        tile_block<R, P>(tiles, x, work.w.from(p, 0), last, work.next(p + P), out + p * kLanes, e, work.groups);
    return p;
}

// Up to two tiles of rows against all panels.
INLINE void tile_rows(Tiles& tiles, const Bf16* x, int rows, const TileWork& work, float* out, Extent e) {
    alignas(64) Bf16 ends[2 * kTile * 2 * kTile];
    int left = work.groups % kTile * 2, p = 0;
    if (left) fill_rows(x + work.groups * 2 - left, e.x_stride, rows, left, ends);
    const Bf16* last = left ? ends : nullptr;
    if (rows > kTile) {
        p = tile_blocks<2, 2>(tiles, p, work, x, last, out, e);
        tile_blocks<2, 1>(tiles, p, work, x, last, out, e);
    } else {
        p = tile_blocks<1, 4>(tiles, p, work, x, last, out, e);
        p = tile_blocks<1, 2>(tiles, p, work, x, last, out, e);
        tile_blocks<1, 1>(tiles, p, work, x, last, out, e);
    }
}

template <>
void gemm(const Bf16* x, int rows, Panelled<Bf16> w, int panels, int groups, float* out, Extent e,
          Panelled<Bf16> after) {
    constexpr uint8_t kWhole = kTile;
    Tiles tiles;
    for (int r = 0, shape = 0; r < rows; r += 2 * kTile) {
        int taken = rows - r < 2 * kTile ? rows - r : 2 * kTile;
        if (taken != shape) {
            uint8_t one = static_cast<uint8_t>(taken < kTile ? taken : kTile), two = static_cast<uint8_t>(taken - one);
            if (two)
                tiles.configure({one, one, two, two, one, two, kWhole, kWhole});
            else
                tiles.configure({one, one, one, one, one, one, kWhole, kWhole});
            shape = taken;
        }
        tile_rows(tiles, x + r * e.x_stride, taken, {w, panels, groups, after.at, r == 0}, out + r * e.out_stride, e);
    }
}

template <>
void gemm(const Bf16* x, int rows, Halves<Bf16> w, int panels, int groups, float* out, Extent e, Halves<Bf16> after) {
    Panelled<Bf16> second{w.of(w.wide, 0), w.first.stride};
    gemm<Bf16>(x, rows, w.first, w.wide, groups, out, e, second);
    gemm<Bf16>(x, rows, second, panels - w.wide, groups, out + w.wide * kLanes, e, after.first);
}
