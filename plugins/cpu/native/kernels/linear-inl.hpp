// Linear maps fused with what follows them. Rounding is that of the torch kernels: each result is rounded to the
// model's dtype where torch would store it.

constexpr int kBlockRows = 48;  // the rows and panels whose sums a task holds on its stack
constexpr int kBlockPanels = 8;

template <typename S>
INLINE Panels<S> panels_from(const Linear<S>& w, int panel) {
    return {w.panels + panel * w.panel_stride(), w.panel_stride()};
}

// What a task reads after panel `end - 1`.
template <typename S>
INLINE const S* next_weights(const Linear<S>& w, PanelRange range, int end) {
    return end < range.end || !range.next ? panels_from(w, end).data : static_cast<const S*>(range.next);
}

// Calls `epilogue(row, panel, sums)` for each output vector, after blocks of kBlockRows rows times kBlockPanels panels.
template <typename S, typename Epilogue>
INLINE void for_each_sum(const Linear<S>& w, Rows<const S> x, PanelRange range, Epilogue epilogue) {
    alignas(64) float sums[kBlockRows * kBlockPanels * kLanes];
    for (int p = range.begin; p < range.end; p += kBlockPanels) {
        int width = range.end - p < kBlockPanels ? range.end - p : kBlockPanels;
        RowStrides strides{x.stride, width * kLanes};
        for (int r = 0; r < x.count; r += kBlockRows) {
            int rows = x.count - r < kBlockRows ? x.count - r : kBlockRows;
            gemm<S>(x.data + r * x.stride, rows, panels_from(w, p), width, w.k_groups(), sums, strides,
                    Panels<S>{next_weights(w, range, p + width), w.panel_stride()});
            for (int i = 0; i < rows; ++i)
                for (int j = 0; j < width; ++j) epilogue(r + i, p + j, load(sums + i * strides.out + j * kLanes));
        }
    }
}

// The last panel may have fewer outputs.
template <typename S>
INLINE int panel_outputs(const Linear<S>& w, int panel) {
    int left = w.out_features - panel * kLanes;
    return left < kLanes ? left : kLanes;
}

template <typename S>
INLINE Vec add_bias(const Linear<S>& w, int panel, Vec x) {
    return w.bias ? add(x, load(w.bias + panel * kLanes)) : x;
}

template <typename S>
static void linear(const Linear<S>& w, Rows<const S> x, PanelRange range, Rows<S> out) {
    for_each_sum(w, x, range, [&](int row, int panel, Vec sums) {
        store(out.data + row * out.stride + panel * kLanes, add_bias(w, panel, sums), panel_outputs(w, panel));
    });
}

// out += linear(x), rounded before the addition.
template <typename S>
static void linear_add(const Linear<S>& w, Rows<const S> x, PanelRange range, Rows<S> out) {
    for_each_sum(w, x, range, [&](int row, int panel, Vec sums) {
        S* to = out.data + row * out.stride + panel * kLanes;
        int n = panel_outputs(w, panel);
        store(to, add(load(to, n), round_to(add_bias(w, panel, sums), to)), n);
    });
}

template <typename S>
static void linear_logits(const Linear<S>& w, Rows<const S> x, PanelRange range, Rows<float> out) {
    for_each_sum(w, x, range, [&](int row, int panel, Vec sums) {
        store(out.data + row * out.stride + panel * kLanes, round_to(add_bias(w, panel, sums), x.data),
              panel_outputs(w, panel));
    });
}

template <typename S>
INLINE Vec swiglu(Vec gate, Vec up, const S* dtype) {
    return mul(round_to(silu(gate), dtype), up);
}

// The first half of the outputs are gates, the second half ups: out = silu(gate) * up. `range` is of gate panels.
template <typename S>
static void linear_swiglu(const Linear<S>& w, Rows<const S> x, PanelRange range, Rows<S> out) {
    int half = w.num_panels() / 2;
    alignas(64) float sums[kBlockRows * 2 * kBlockPanels * kLanes];
    for (int p = range.begin; p < range.end; p += kBlockPanels) {
        int width = range.end - p < kBlockPanels ? range.end - p : kBlockPanels;
        RowStrides strides{x.stride, 2 * width * kLanes};
        auto gate_up = [&](const S* gate) {
            return GateUpPanels<S>{{gate, w.panel_stride()}, width, (half - width) * w.panel_stride()};
        };
        for (int r = 0; r < x.count; r += kBlockRows) {
            int rows = x.count - r < kBlockRows ? x.count - r : kBlockRows;
            gemm<S>(x.data + r * x.stride, rows, gate_up(panels_from(w, p).data), 2 * width, w.k_groups(), sums,
                    strides, gate_up(next_weights(w, range, p + width)));
            for (int i = 0; i < rows; ++i)
                for (int j = 0; j < width; ++j) {
                    const float* from = sums + i * strides.out + j * kLanes;
                    S* to = out.data + (r + i) * out.stride + (p + j) * kLanes;
                    Vec gate = round_to(add_bias(w, p + j, load(from)), to);
                    Vec up = round_to(add_bias(w, half + p + j, load(from + width * kLanes)), to);
                    store(to, swiglu(gate, up, to));
                }
        }
    }
}
