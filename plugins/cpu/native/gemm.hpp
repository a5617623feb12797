// Rows times packed panels, accumulated in float32.
//
// A panel holds sixteen outputs: [group][16 outputs][inputs of a group]. Every output is one chain of dot instructions
// over the groups, first to last, whatever rows and panels are computed beside it: blocking chooses which accumulators
// live in registers together and never touches the order within one. Included after a lane file, in its namespace.

INLINE F weights(const float* p) { return load(p); }
INLINE F input(const float* p) { return splat(*p); }
INLINE F dot(F sum, F x, F w) { return fma(x, w, sum); }

struct Extent {
    ptrdiff_t x_stride;      // numbers between two rows of the input
    ptrdiff_t panel_stride;  // numbers between two panels
    ptrdiff_t out_stride;    // floats between two rows of the output
};

// Weights that are fetched while others are multiplied: `panels` of them, from `at` on.
template <typename S>
struct Fetch {
    const S* at;
    int panels;
};

// out[r][16 p + lane], continued where `groups` of earlier inputs have left it unless `fresh`.
template <typename S, int R, int P>
static void block(const S* x, const S* w, float* out, Extent e, int groups, bool fresh, Fetch<S> next) {
    F sums[R][P];
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p) sums[r][p] = fresh ? zeros() : load(out + r * e.out_stride + p * kLanes);
    for (int g = 0; g < groups; ++g) {
        ptrdiff_t at = ptrdiff_t{g} * kLanes * kStep<S>;
        decltype(weights(w)) columns[P];
        for (int p = 0; p < P; ++p) columns[p] = weights(w + p * e.panel_stride + at);
        if constexpr (R > 1)  // one row runs ahead by itself
            for (int p = 0; p < next.panels; ++p) __builtin_prefetch(next.at + p * e.panel_stride + at, 0, 2);
        for (int r = 0; r < R; ++r) {
            auto row = input(x + r * e.x_stride + ptrdiff_t{g} * kStep<S>);
            for (int p = 0; p < P; ++p) sums[r][p] = dot(sums[r][p], row, columns[p]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p) store(out + r * e.out_stride + p * kLanes, sums[r][p]);
}

// `panels` is a power of two that fits in registers beside `rows` rows.
template <typename S, int R, int P>
INLINE void block_of(int panels, const S* x, const S* w, float* out, Extent e, int groups, bool fresh, Fetch<S> next) {
    if constexpr (P > 1) {
        if (P > most_panels(R) || panels < P) return block_of<S, R, P / 2>(panels, x, w, out, e, groups, fresh, next);
    }
    if constexpr (P <= most_panels(R)) block<S, R, P>(x, w, out, e, groups, fresh, next);
}
template <typename S, int R = kMostRows>
INLINE void block_of(int rows, int panels, const S* x, const S* w, float* out, Extent e, int groups, bool fresh,
                     Fetch<S> next) {
    if constexpr (R > 1) {
        if (rows < R) return block_of<S, R - 1>(rows, panels, x, w, out, e, groups, fresh, next);
    }
    block_of<S, R, 8>(panels, x, w, out, e, groups, fresh, next);
}

// How many of `panels` go together with `rows` rows.
INLINE int fitting(int rows, int panels) {
    int fit = most_panels(rows);
    while (fit > panels) fit /= 2;
    return fit;
}

constexpr int kChunk = 384;  // inputs of a pass over many rows: the weights in use stay in the first cache

// out[rows][16 * panels] = x[rows][inputs] * panels
//
// With several rows the processor computes too long between two loads to run ahead in memory by itself: what comes next is
// fetched, a part of it by every block of rows, since more at a time than it can wait for is dropped.
template <typename S>
static void gemm(const S* x, int rows, const S* w, int panels, int groups, float* out, Extent e) {
    int parts = divided_up(rows, kMostRows), height = divided_up(rows, parts);
    int chunk = parts == 1 ? groups : kChunk / kStep<S>;
    for (int done = 0, taken; done < panels; done += taken) {
        taken = fitting(height, panels - done);
        int share = divided_up(taken, parts);
        for (int g = 0; g < groups; g += chunk) {
            int part = groups - g < chunk ? groups - g : chunk;
            const S* from = w + done * e.panel_stride + ptrdiff_t{g} * kLanes * kStep<S>;
            const S* later = g + chunk < groups ? from + ptrdiff_t{chunk} * kLanes * kStep<S> : w + (done + taken) * e.panel_stride;
            for (int r = 0, fetched = 0; r < rows; r += height, fetched += share) {
                Fetch<S> next{later + fetched * e.panel_stride, fetched < taken ? share : 0};
                block_of<S>(rows - r < height ? rows - r : height, taken, x + r * e.x_stride + ptrdiff_t{g} * kStep<S>, from,
                            out + r * e.out_stride + done * kLanes, e, part, g == 0, next);
            }
        }
    }
}
