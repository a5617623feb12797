// Linear maps fused with what follows them. Rounding is that of the torch kernels: each result is rounded to the
// model's dtype where torch would store it.

template <typename S>
INLINE Panels<S> panels_from(const Linear<S>& w, int panel) {
    return {static_cast<const S*>(w.panel(panel)), w.panel_stride()};
}

// What a task reads after panel `end - 1`.
template <typename S>
INLINE ReadNext next_of(const Linear<S>& w, PanelRange range, int end) {
    return {end < range.end || !range.next ? w.panel(end) : range.next, range.ahead};
}

// Calls `block(panel, count)` for blocks of consecutive panels, of up to `most`.
template <typename Callback>
INLINE void for_each_block(PanelRange range, int most, Callback block) {
    for (int p = range.begin; p < range.end; p += most) block(p, range.end - p < most ? range.end - p : most);
}

// Calls `epilogue(row, panel, sums)` for each output vector of a block of `width` panels, after every kBlockRows rows.
// multiply(first row, rows, out, stride of out): all sums of `rows` rows from the first on.
template <typename Multiply, typename Epilogue>
INLINE void for_each_row_block(int count, int width, float* sums, Multiply multiply, Epilogue epilogue) {
    ptrdiff_t stride = ptrdiff_t{width} * kLanes;
    for (int r = 0; r < count; r += kBlockRows) {
        int rows = count - r < kBlockRows ? count - r : kBlockRows;
        multiply(r, rows, sums, stride);
        for (int i = 0; i < rows; ++i) epilogue(r + i, sums + i * stride);
    }
}

// How many panels a block of a linear map with 8-bit weights has at most.
template <typename S>
INLINE int max_block_panels(const Linear<S>& w, int rows) {
    return w.scales && !w.corrections ? Int8Block<S>::max_panels(w, rows) : kBlockPanels;
}

// Calls `epilogue(row, panel, sums)` for each output vector.
template <typename S, typename Epilogue>
INLINE void for_each_sum(const Linear<S>& w, const Inputs<S>& in, PanelRange range, Epilogue epilogue) {
    alignas(64) float sums[kBlockRows * kBlockPanels * kLanes];
    Rows<const S> x = in.rows;
    for_each_block(range, max_block_panels(w, x.count), [&](int p, int width) {
        ReadNext next = next_of(w, range, p + width);
        auto finish = [&](int row, const float* of_row) {
            for (int j = 0; j < width; ++j) epilogue(row, p + j, load(of_row + j * kLanes));
        };
        if (w.coded) {
            CodedBlock<S> block(w, in.coded, p, width, next.weights);
            auto multiply = [&](int row, int rows, float* out, ptrdiff_t stride) {
                block.multiply(row, rows, out, stride);
            };
            return for_each_row_block(x.count, width, sums, multiply, finish);
        }
        if (w.corrections) {
            QuantizedBlock<S> block(w, in.quantized, p, width, next);
            auto multiply = [&](int row, int rows, float* out, ptrdiff_t stride) {
                block.multiply(row, rows, out, stride);
            };
            return for_each_row_block(x.count, width, sums, multiply, finish);
        }
        if (w.scales) {
            Int8Block<S> block(w, p, width, next, x.count, 0);
            auto multiply = [&](int row, int rows, float* out, ptrdiff_t stride) {
                block.multiply(x.data + row * x.stride, rows, out, {x.stride, stride});
            };
            return for_each_row_block(x.count, width, sums, multiply, finish);
        }
        auto multiply = [&](int row, int rows, float* out, ptrdiff_t stride) {
            gemm<S>(x.data + row * x.stride, rows, panels_from(w, p), width, w.k_groups(), out,
                    RowStrides{x.stride, stride}, Panels<S>{static_cast<const S*>(next.weights), w.panel_stride()},
                    next.pages);
        };
        for_each_row_block(x.count, width, sums, multiply, finish);
    });
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
static void linear(const Linear<S>& w, const Inputs<S>& in, PanelRange range, Rows<S> out) {
    for_each_sum(w, in, range, [&](int row, int panel, Vec sums) {
        store(out.data + row * out.stride + panel * kLanes, add_bias(w, panel, sums), panel_outputs(w, panel));
    });
}

// out += linear(x), rounded before the addition.
template <typename S>
static void linear_add(const Linear<S>& w, const Inputs<S>& in, PanelRange range, Rows<S> out) {
    for_each_sum(w, in, range, [&](int row, int panel, Vec sums) {
        S* to = out.data + row * out.stride + panel * kLanes;
        int n = panel_outputs(w, panel);
        store(to, add(load(to, n), round_to(add_bias(w, panel, sums), to)), n);
    });
}

template <typename S>
static void linear_logits(const Linear<S>& w, const Inputs<S>& in, PanelRange range, Rows<float> out) {
    for_each_sum(w, in, range, [&](int row, int panel, Vec sums) {
        store(out.data + row * out.stride + panel * kLanes, round_to(add_bias(w, panel, sums), in.rows.data),
              panel_outputs(w, panel));
    });
}

template <typename S>
INLINE Vec swiglu(Vec gate, Vec up, const S* dtype) {
    return mul(round_to(silu(gate), dtype), up);
}

// The first half of the outputs are gates, the second half ups: out = silu(gate) * up. `range` is of gate panels.
template <typename S>
static void linear_swiglu(const Linear<S>& w, const Inputs<S>& in, PanelRange range, Rows<S> out) {
    int half = w.num_panels() / 2;
    alignas(64) float sums[kBlockRows * 2 * kBlockPanels * kLanes];
    Rows<const S> x = in.rows;
    for_each_block(range, max_block_panels(w, x.count), [&](int p, int width) {
        ReadNext next = next_of(w, range, p + width);
        auto finish = [&](int row, const float* of_row) {
            for (int j = 0; j < width; ++j) {
                S* to = out.data + row * out.stride + (p + j) * kLanes;
                Vec gate = round_to(add_bias(w, p + j, load(of_row + j * kLanes)), to);
                Vec up = round_to(add_bias(w, half + p + j, load(of_row + (width + j) * kLanes)), to);
                store(to, swiglu(gate, up, to));
            }
        };
        if (w.coded) {
            CodedBlock<S> gate(w, in.coded, p, width, w.panel(half + p)),
                up(w, in.coded, half + p, width, next.weights);
            auto multiply = [&](int row, int rows, float* to, ptrdiff_t stride) {
                gate.multiply(row, rows, to, stride);
                up.multiply(row, rows, to + width * kLanes, stride);
            };
            return for_each_row_block(x.count, 2 * width, sums, multiply, finish);
        }
        if (w.corrections) {
            QuantizedBlock<S> gate(w, in.quantized, p, width, {w.panel(half + p), range.ahead});
            QuantizedBlock<S> up(w, in.quantized, half + p, width, next);
            auto multiply = [&](int row, int rows, float* to, ptrdiff_t stride) {
                gate.multiply(row, rows, to, stride);
                up.multiply(row, rows, to + width * kLanes, stride);
            };
            return for_each_row_block(x.count, 2 * width, sums, multiply, finish);
        }
        if (w.scales) {
            Int8Block<S> gate(w, p, width, {w.panel(half + p), range.ahead}, x.count, 0);
            Int8Block<S> up(w, half + p, width, next, x.count, 1);
            auto multiply = [&](int row, int rows, float* to, ptrdiff_t stride) {
                gate.multiply(x.data + row * x.stride, rows, to, {x.stride, stride});
                up.multiply(x.data + row * x.stride, rows, to + width * kLanes, {x.stride, stride});
            };
            return for_each_row_block(x.count, 2 * width, sums, multiply, finish);
        }
        auto gate_up = [&](const void* gate) {
            Panels<S> gates{static_cast<const S*>(gate), w.panel_stride()};
            return GateUpPanels<S>{gates, width, (half - width) * w.panel_stride()};
        };
        auto multiply = [&](int row, int rows, float* to, ptrdiff_t stride) {
            gemm<S>(x.data + row * x.stride, rows, gate_up(w.panel(p)), 2 * width, w.k_groups(), to,
                    RowStrides{x.stride, stride}, gate_up(next.weights), next.pages);
        };
        for_each_row_block(x.count, 2 * width, sums, multiply, finish);
    });
}
