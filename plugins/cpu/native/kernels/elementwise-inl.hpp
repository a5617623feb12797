// Elementwise operations on rows.

// gate_up: [count][2 * size] -> out: [count][size]
template <typename S>
static void silu_and_multiply(Rows<const S> gate_up, int size, Rows<S> out) {
    for (int r = 0; r < gate_up.count; ++r) {
        const S* gate = gate_up.data + r * gate_up.stride;
        S* to = out.data + r * out.stride;
        for (int i = 0; i < size; i += kLanes) {
            int n = size - i < kLanes ? size - i : kLanes;
            store(to + i, swiglu(load(gate + i, n), load(gate + size + i, n), to), n);
        }
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
