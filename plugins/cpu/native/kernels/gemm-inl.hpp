// Rows times packed panels, accumulated in float32.
//
// A panel holds sixteen outputs: [group][16 outputs][inputs of a group]. Every output is one chain of dot instructions
// over the groups, first to last, whatever rows and panels are computed beside it: blocking chooses which accumulators
// live in registers together and never touches the order within one. Included after a lane file, in its namespace.

INLINE F weights(const float* p) { return load(p); }
INLINE F input(const float* p) { return splat(*p); }
INLINE F dot(F sum, F x, F w) { return fma(x, w, sum); }

struct Extent {
    ptrdiff_t x_stride;    // numbers between two rows of the input
    ptrdiff_t out_stride;  // floats between two rows of the output
};

// Panels that lie one after the other. Others may lie elsewhere: `of` says where the sixteen weights of a group are.
template <typename S>
struct Panelled {
    static constexpr int kRun = 1 << 30;  // groups that lie one after the other
    const S* at;
    ptrdiff_t stride;  // numbers between two panels

    const S* of(int panel, int group) const { return at + panel * stride + ptrdiff_t{group} * kLanes * kStep<S>; }
    Panelled from(int panel, int group) const { return {of(panel, group), stride}; }
};

// The first `wide` panels as they lie, the others `gap` numbers further: a part of each half of a map.
template <typename S>
struct Halves {
    static constexpr int kRun = 1 << 30;  // groups that lie one after the other
    Panelled<S> first;
    int wide;
    ptrdiff_t gap;

    const S* of(int panel, int group) const { return first.of(panel, group) + (panel < wide ? 0 : gap); }
    Halves from(int panel, int group) const { return {first.from(panel, group), wide - panel, gap}; }
};

// Weights that are fetched while others are multiplied: the first `panels` of them.
template <typename Weights>
struct Fetch {
    Weights from;
    int panels;
};

// out[r][16 p + lane], continued where `groups` of earlier inputs have left it unless `fresh`.
//
// The processor computes too long between two loads to run ahead in memory by itself, and its own guesses end with a
// panel: what comes next is fetched.
template <typename S, typename Weights, int R, int P>
static void block(const S* x, Weights w, float* out, Extent e, int groups, bool fresh, Fetch<Weights> next) {
    F sums[R][P];
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p) sums[r][p] = fresh ? zeros() : load(out + r * e.out_stride + p * kLanes);
    for (int g = 0; g < groups;) {
        const S* at[P];
        for (int p = 0; p < P; ++p) at[p] = w.of(p, g);
        int end = groups - g < Weights::kRun ? groups : g + Weights::kRun;
        for (ptrdiff_t i = 0; g < end; ++g, i += kLanes * kStep<S>) {
            decltype(weights(x)) columns[P];
            for (int p = 0; p < P; ++p) columns[p] = weights(at[p] + i);
            for (int p = 0; p < next.panels; ++p) __builtin_prefetch(next.from.of(p, g), 0, 2);
            for (int r = 0; r < R; ++r) {
                auto row = input(x + r * e.x_stride + ptrdiff_t{g} * kStep<S>);
                for (int p = 0; p < P; ++p) sums[r][p] = dot(sums[r][p], row, columns[p]);
            }
        }
    }
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p) store(out + r * e.out_stride + p * kLanes, sums[r][p]);
}

// As many `rows` and `panels` as fit in registers together.
template <typename S, typename Weights, int R, int P>
INLINE void block_of(int panels, const S* x, Weights w, float* out, Extent e, int groups, bool fresh,
                     Fetch<Weights> next) {
    if constexpr (P > 1) {
        if (panels < P) return block_of<S, Weights, R, P - 1>(panels, x, w, out, e, groups, fresh, next);
    }
    block<S, Weights, R, P>(x, w, out, e, groups, fresh, next);
}
template <typename S, typename Weights, int R = kMostRows>
INLINE void block_of(int rows, int panels, const S* x, Weights w, float* out, Extent e, int groups, bool fresh,
                     Fetch<Weights> next) {
    if constexpr (R > 1) {
        if (rows < R) return block_of<S, Weights, R - 1>(rows, panels, x, w, out, e, groups, fresh, next);
    }
    block_of<S, Weights, R, most_panels(R)>(panels, x, w, out, e, groups, fresh, next);
}

// How many of `panels` go together with `rows` rows, so that no pass is much narrower than the others: with few sums a
// processor waits for each.
INLINE int fitting(int rows, int panels) { return divided_up(panels, divided_up(panels, most_panels(rows))); }

constexpr int kChunk = 384;  // inputs of a pass over many rows: the weights in use stay in the first cache

// out[rows][16 * panels] = x[rows][inputs] * panels. `after`: what is wanted next, fetched as far as the last pass is
// wide.
//
// Every block of rows fetches a part of what comes next: more at a time than the processor can wait for is dropped.
template <typename S, typename Weights>
static void gemm(const S* x, int rows, Weights w, int panels, int groups, float* out, Extent e, Weights after) {
    int parts = divided_up(rows, kMostRows), height = divided_up(rows, parts);
    int chunk = parts == 1 ? groups : kChunk / kStep<S>;
    for (int done = 0, taken; done < panels; done += taken) {
        taken = fitting(height, panels - done);
        int share = divided_up(taken, parts);
        for (int g = 0; g < groups; g += chunk) {
            int part = groups - g < chunk ? groups - g : chunk;
            Weights from = w.from(done, g), later = w.from(done, g + chunk);
            if (g + chunk >= groups) later = done + taken < panels ? w.from(done + taken, 0) : after;
            for (int r = 0, fetched = 0; r < rows; r += height, fetched += share)
                block_of<S>(rows - r < height ? rows - r : height, taken, x + r * e.x_stride + ptrdiff_t{g} * kStep<S>,
                            from, out + r * e.out_stride + done * kLanes, e, part, g == 0,
                            Fetch<Weights>{later.from(fetched, 0), fetched < taken ? share : 0});
        }
    }
}

// The same for panels that lie as `Weights` says. `ahead`: as many that come later, to be fetched. scratch: as large as
// the panels, for instruction sets that must have them one after the other.
template <typename S, typename Weights>
static void gemm_of(const S* x, int rows, Weights w, Weights ahead, int panels, int groups, float* out, Extent e,
                    S* /*scratch*/) {
    int parts = divided_up(rows, kMostRows), height = divided_up(rows, parts);
    for (int done = 0, taken; done < panels; done += taken) {
        taken = fitting(height, panels - done);
        int share = divided_up(taken, parts);
        for (int r = 0, fetched = 0; r < rows; r += height, fetched += share)
            block_of<S>(rows - r < height ? rows - r : height, taken, x + r * e.x_stride, w.from(done),
                        out + r * e.out_stride + done * kLanes, e, groups, true,
                        Fetch<Weights>{ahead.from(done + fetched), fetched < taken ? share : 0});
    }
}
