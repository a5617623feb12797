// Linear maps with what follows them, norms, rotation and activation: tasks whose rows do not see each other.
// Rounding is that of the torch kernels: every result is rounded to the model's dtype where torch would store it.
// Included after gemm.hpp, in a lane file's namespace.

constexpr int kTaskRows = 48;  // rows and panels whose sums a task holds at a time, on its stack
constexpr int kTaskPanels = 8;

template <typename S>
INLINE Panelled<S> panels_from(const Linear<S>& w, int panel) {
    return {w.panels + panel * w.panel_stride(), w.panel_stride()};
}

// What a task wants when its panels up to `end` are done.
template <typename S>
INLINE const S* wanted_after(const Linear<S>& w, Panels panels, int end) {
    return end < panels.end || !panels.after ? panels_from(w, end).at : static_cast<const S*>(panels.after);
}

// Sums of up to kTaskRows rows and kTaskPanels panels at a time, handed to `finish(row, panel, pointer to the sums)`.
template <typename S, typename Finish>
INLINE void each_panel(const Linear<S>& w, Rows<const S> x, Panels panels, Finish finish) {
    alignas(64) float sums[kTaskRows * kTaskPanels * kLanes];
    for (int p = panels.begin; p < panels.end; p += kTaskPanels) {
        int wide = panels.end - p < kTaskPanels ? panels.end - p : kTaskPanels;
        Extent e{x.stride, wide * kLanes};
        for (int r = 0; r < x.count; r += kTaskRows) {
            int rows = x.count - r < kTaskRows ? x.count - r : kTaskRows;
            gemm<S>(x.at + r * x.stride, rows, panels_from(w, p), wide, w.groups(), sums, e,
                    Panelled<S>{wanted_after(w, panels, p + wide), w.panel_stride()});
            for (int i = 0; i < rows; ++i)
                for (int j = 0; j < wide; ++j) finish(r + i, p + j, load(sums + i * e.out_stride + j * kLanes));
        }
    }
}

// How many outputs of a panel exist.
template <typename S>
INLINE int lanes_of(const Linear<S>& w, int panel) {
    int left = w.outs - panel * kLanes;
    return left < kLanes ? left : kLanes;
}

template <typename S>
INLINE F biased(const Linear<S>& w, int panel, F x) {
    return w.bias ? add(x, load(w.bias + panel * kLanes)) : x;
}

template <typename S>
static void linear_store(const Linear<S>& w, Rows<const S> x, Panels panels, Rows<S> out) {
    each_panel(w, x, panels, [&](int row, int panel, F sums) {
        store(out.at + row * out.stride + panel * kLanes, biased(w, panel, sums), lanes_of(w, panel));
    });
}

// out += the map, rounded before it is added.
template <typename S>
static void linear_add(const Linear<S>& w, Rows<const S> x, Panels panels, Rows<S> out) {
    each_panel(w, x, panels, [&](int row, int panel, F sums) {
        S* to = out.at + row * out.stride + panel * kLanes;
        int n = lanes_of(w, panel);
        store(to, add(load(to, n), rounded(biased(w, panel, sums), to)), n);
    });
}

template <typename S>
static void linear_logits(const Linear<S>& w, Rows<const S> x, Panels panels, Rows<float> out) {
    each_panel(w, x, panels, [&](int row, int panel, F sums) {
        store(out.at + row * out.stride + panel * kLanes, rounded(biased(w, panel, sums), x.at), lanes_of(w, panel));
    });
}

template <typename S>
INLINE F gated(F gate, F up, const S* kind) {
    return mul(rounded(silu(gate), kind), up);
}

// The first half of the outputs are gates of the second half: out = silu(gate) * up; `panels` are those of gates.
template <typename S>
static void linear_gated(const Linear<S>& w, Rows<const S> x, Panels panels, Rows<S> out) {
    int half = w.num_panels() / 2;
    auto bias = [&](int panel, F sum) { return w.bias ? add(sum, load(w.bias + panel * kLanes)) : sum; };
    alignas(64) float sums[kTaskRows * 2 * kTaskPanels * kLanes];
    for (int p = panels.begin; p < panels.end; p += kTaskPanels) {
        int wide = panels.end - p < kTaskPanels ? panels.end - p : kTaskPanels;
        Extent e{x.stride, 2 * wide * kLanes};
        auto halves = [&](const S* at) {
            return Halves<S>{{at, w.panel_stride()}, wide, (half - wide) * w.panel_stride()};
        };
        for (int r = 0; r < x.count; r += kTaskRows) {
            int rows = x.count - r < kTaskRows ? x.count - r : kTaskRows;
            gemm<S>(x.at + r * x.stride, rows, halves(panels_from(w, p).at), 2 * wide, w.groups(), sums, e,
                    halves(wanted_after(w, panels, p + wide)));
            for (int i = 0; i < rows; ++i)
                for (int j = 0; j < wide; ++j) {
                    const float* from = sums + i * e.out_stride + j * kLanes;
                    S* to = out.at + (r + i) * out.stride + (p + j) * kLanes;
                    F gate = rounded(bias(p + j, load(from)), to),
                      up = rounded(bias(half + p + j, load(from + wide * kLanes)), to);
                    store(to, gated(gate, up, to));
                }
        }
    }
}

template <typename S>
static void activate(Rows<const S> gate_up, int size, Rows<S> out) {
    for (int r = 0; r < gate_up.count; ++r) {
        const S* gate = gate_up.at + r * gate_up.stride;
        S* to = out.at + r * out.stride;
        for (int i = 0; i < size; i += kLanes) {
            int n = size - i < kLanes ? size - i : kLanes;
            store(to + i, gated(load(gate + i, n), load(gate + size + i, n), to), n);
        }
    }
}

// Zhang and Sennrich, 2019. The mean square is one chain per lane, then the tree of `sum`.
template <typename S>
static void norm(Rows<const S> x, const S* gain, float eps, int size, Rows<S> out) {
    for (int r = 0; r < x.count; ++r) {
        const S* from = x.at + r * x.stride;
        S* to = out.at + r * out.stride;
        F squares = zeros();
        for (int i = 0; i < size; i += kLanes) {
            F part = load(from + i, size - i < kLanes ? size - i : kLanes);
            squares = fma(part, part, squares);
        }
        F scale = splat(1.0f / __builtin_sqrtf(sum(squares) / static_cast<float>(size) + eps));
        for (int i = 0; i < size; i += kLanes) {
            int n = size - i < kLanes ? size - i : kLanes;
            store(to + i, mul(rounded(mul(load(from + i, n), scale), to), load(gain + i, n)), n);
        }
    }
}

// Su et al., 2021: the first half of the turning numbers meets the second, in float32, rounded once.
template <typename S>
static void rotate(S* head, Rotary by) {
    int half = by.size / 2;
    for (int i = 0; i < half; i += kLanes) {
        int n = half - i < kLanes ? half - i : kLanes;
        F a = load(head + i, n), b = load(head + half + i, n);
        F low = fma(b, load(by.sin + i, n), mul(a, load(by.cos + i, n)));
        F high = fma(a, load(by.sin + half + i, n), mul(b, load(by.cos + half + i, n)));
        store(head + i, low, n);
        store(head + half + i, high, n);
    }
}

// to += from.
template <typename S>
static void plus(const S* from, S* to, int size) {
    for (int i = 0; i < size; i += kLanes) {
        int n = size - i < kLanes ? size - i : kLanes;
        store(to + i, add(load(to + i, n), load(from + i, n)), n);
    }
}
