// Elementwise operations on rows.

// gate_up: [count][2 * size] -> out: [count][size], the activated gates times the ups.
template <typename S, typename Activate>
INLINE void activate_and_multiply(Rows<const S> gate_up, int size, Rows<S> out, Activate activate) {
    for (int r = 0; r < gate_up.count; ++r) {
        const S* gate = gate_up.data + r * gate_up.stride;
        S* to = out.data + r * out.stride;
        for (int i = 0; i < size; i += kLanes) {
            int n = size - i < kLanes ? size - i : kLanes;
            store(to + i, mul(round_to(activate(load(gate + i, n)), to), load(gate + size + i, n)), n);
        }
    }
}

template <typename S>
static void silu_and_multiply(Rows<const S> gate_up, int size, Rows<S> out) {
    activate_and_multiply(gate_up, size, out, [](Vec gate) { return silu(gate); });
}

template <typename S>
static void gelu_and_multiply(Rows<const S> gate_up, int size, Rows<S> out) {
    activate_and_multiply(gate_up, size, out, [](Vec gate) { return gelu_tanh(gate); });
}

// gpt-oss's: gates at most `limit`, ups within it on both sides; out = gate / (1 + e^(-gain gate)) (up + 1).
template <typename S>
static void clamped_swiglu(Rows<const S> gate_up, int size, SwigluClamp clamp, Rows<S> out) {
    Vec limit = splat(clamp.limit), least = splat(-clamp.limit), gain = splat(-clamp.gain), one = splat(1.0f);
    for (int r = 0; r < gate_up.count; ++r) {
        const S* gates = gate_up.data + r * gate_up.stride;
        S* to = out.data + r * out.stride;
        for (int i = 0; i < size; i += kLanes) {
            int n = size - i < kLanes ? size - i : kLanes;
            Vec gate = min(limit, load(gates + i, n)), up = max(least, min(limit, load(gates + size + i, n)));
            Vec opened = round_to(div(gate, add(one, exp(mul(gain, gate)))), to);
            store(to + i, mul(opened, round_to(add(up, one), to)), n);
        }
    }
}

// out[i] = sigmoid(x[i]), rounded to S.
template <typename S>
static void sigmoids(const S* x, int size, float* out) {
    for (int i = 0; i < size; i += kLanes) {
        int n = size - i < kLanes ? size - i : kLanes;
        store(out + i, round_to(sigmoid(load(x + i, n)), x), n);
    }
}

// out = x times the sigmoids of gates, each of `width` neighbours in x. `out` may be x.
template <typename S>
static void gate(const S* x, const S* gates, int num_gates, int width, S* out) {
    float opened[kLanes];
    for (int i = 0; i < num_gates; i += kLanes) {
        int n = num_gates - i < kLanes ? num_gates - i : kLanes;
        sigmoids(gates + i, n, opened);
        if (width == 1) {
            store(out + i, mul(load(x + i, n), load(opened, n)), n);
            continue;
        }
        for (int g = 0; g < n; ++g)
            for (int j = 0; j < width; j += kLanes) {
                int m = width - j < kLanes ? width - j : kLanes;
                ptrdiff_t at = ptrdiff_t{i + g} * width + j;
                store(out + at, mul(load(x + at, m), splat(opened[g])), m);
            }
    }
}

// x *= scale
template <typename S>
static void scale_inplace(S* x, float scale, int size) {
    for (int i = 0; i < size; i += kLanes) {
        int n = size - i < kLanes ? size - i : kLanes;
        store(x + i, mul(load(x + i, n), splat(scale)), n);
    }
}

// out += x
template <typename S>
static void add_inplace(const S* x, S* out, int size) {
    for (int i = 0; i < size; i += kLanes) {
        int n = size - i < kLanes ? size - i : kLanes;
        store(out + i, add(load(out + i, n), load(x + i, n)), n);
    }
}
