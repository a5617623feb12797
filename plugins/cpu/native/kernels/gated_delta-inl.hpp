// Gated delta nets. Sums over rows of S are two chains, of even and of odd rows, for each column; those over a head's
// numbers are one chain per lane, then the tree of `reduce_sum`.

constexpr float kEpsOfLength = 1e-6f;
constexpr int kStepVectors = kFewRegisters ? 2 : 4;  // vectors of columns that share a pass over the rows

template <bool whole, typename T>
INLINE Vec load_lanes(const T* p, int n) {
    if constexpr (whole) return load(p);
    return load(p, n);
}
template <bool whole>
INLINE void store_lanes(float* p, Vec x, int n) {
    if constexpr (whole) return store(p, x);
    store(p, x, n);
}

template <bool whole, typename S>
INLINE void convolve_lanes(const ConvInputs<S>& inputs, const float* taps, int num_channels, int channel, int n,
                           float* out) {
    Vec total = zeros();
    int i = 0;
    for (; i < inputs.num_rows; ++i)
        total = fma(load_lanes<whole>(inputs.rows[i] + channel, n),
                    load_lanes<whole>(taps + ptrdiff_t{i} * num_channels + channel, n), total);
    for (; i < inputs.num_taps; ++i)
        total = fma(load_lanes<whole>(inputs.window[i] + channel, n),
                    load_lanes<whole>(taps + ptrdiff_t{i} * num_channels + channel, n), total);
    store_lanes<whole>(out, round_to(silu(total), static_cast<const S*>(nullptr)), n);
}

template <typename S>
static void convolve(const ConvInputs<S>& inputs, const float* taps, int num_channels, int begin, int count,
                     float* out) {
    int i = 0;
    for (; i + kLanes <= count; i += kLanes)
        convolve_lanes<true>(inputs, taps, num_channels, begin + i, kLanes, out + i);
    if (i < count) convolve_lanes<false>(inputs, taps, num_channels, begin + i, count - i, out + i);
}

static void set_length(float* x, float length, int size) {
    Vec squares = zeros();
    for (int i = 0; i < size; i += kLanes) {
        Vec part = load(x + i, size - i < kLanes ? size - i : kLanes);
        squares = fma(part, part, squares);
    }
    Vec scale = splat(length / __builtin_sqrtf(reduce_sum(squares) + kEpsOfLength));
    for (int i = 0; i < size; i += kLanes) {
        int n = size - i < kLanes ? size - i : kLanes;
        store(x + i, mul(load(x + i, n), scale), n);
    }
}

// log(1 + e^x), and x from 20 on, as torch has it. What 1 + e^x rounds away is divided out (Kahan).
INLINE Vec softplus(Vec x) {
    Vec one = splat(1.0f), power = exp(x), sum = add(one, power), rounded = sub(sum, one);
    Vec exact = where_less(rounded, splat(1e-30f), power, mul(log(sum), div(power, rounded)));
    return where_less(splat(20.0f), x, x, exact);
}

template <typename S>
static void gates(const S* a, const S* b, const float* dt_bias, const float* rate, int count, float* decay,
                  float* beta) {
    for (int i = 0; i < count; i += kLanes) {
        int n = count - i < kLanes ? count - i : kLanes;
        store(decay + i, exp(mul(load(rate + i, n), softplus(add(load(a + i, n), load(dt_bias + i, n))))), n);
        Vec one = splat(1.0f), sigmoid = div(one, add(one, exp(sub(zeros(), load(b + i, n)))));
        store(beta + i, round_to(sigmoid, b), n);
    }
}

// `vectors` whole vectors of columns, or the n < kLanes last columns.
template <int vectors, bool whole>
INLINE void step_columns(const DeltaStep& s, int column, int n) {
    const float* from = s.from + column;
    Vec even[vectors], odd[vectors];
    for (int c = 0; c < vectors; ++c) even[c] = odd[c] = zeros();
    int row = 0;
    for (; row + 2 <= s.dk; row += 2, from += 2 * s.from_stride) {
        Vec first = splat(s.k[row]), second = splat(s.k[row + 1]);
        for (int c = 0; c < vectors; ++c) {
            even[c] = fma(load_lanes<whole>(from + c * kLanes, n), first, even[c]);
            odd[c] = fma(load_lanes<whole>(from + s.from_stride + c * kLanes, n), second, odd[c]);
        }
    }
    if (row < s.dk)
        for (int c = 0; c < vectors; ++c)
            even[c] = fma(load_lanes<whole>(from + c * kLanes, n), splat(s.k[row]), even[c]);

    Vec decay = splat(s.decay), beta = splat(s.beta), delta[vectors], out[vectors];
    for (int c = 0; c < vectors; ++c) {
        Vec known = mul(decay, add(even[c], odd[c]));
        delta[c] = mul(beta, sub(load_lanes<whole>(s.v + column + c * kLanes, n), known));
        out[c] = zeros();
    }
    from = s.from + column;
    float* to = s.to + column;
    for (row = 0; row < s.dk; ++row, from += s.from_stride, to += s.to_stride) {
        Vec k = splat(s.k[row]), q = splat(s.q[row]);
        for (int c = 0; c < vectors; ++c) {
            Vec x = fma(k, delta[c], mul(decay, load_lanes<whole>(from + c * kLanes, n)));
            store_lanes<whole>(to + c * kLanes, x, n);
            out[c] = fma(x, q, out[c]);
        }
    }
    for (int c = 0; c < vectors; ++c) store_lanes<whole>(s.out + column + c * kLanes, out[c], n);
}

static void delta_step(const DeltaStep& s, int columns) {
    int column = 0;
    for (; column + kStepVectors * kLanes <= columns; column += kStepVectors * kLanes)
        step_columns<kStepVectors, true>(s, column, kLanes);
    for (; column + kLanes <= columns; column += kLanes) step_columns<1, true>(s, column, kLanes);
    if (column < columns) step_columns<1, false>(s, column, columns - column);
}

template <typename S>
static void norm_and_gate(const float* o, const S* z, const float* weight, float eps, int size, S* out) {
    Vec squares = zeros();
    for (int i = 0; i < size; i += kLanes) {
        Vec part = round_to(load(o + i, size - i < kLanes ? size - i : kLanes), z);
        squares = fma(part, part, squares);
    }
    Vec scale = splat(1.0f / __builtin_sqrtf(reduce_sum(squares) / static_cast<float>(size) + eps));
    for (int i = 0; i < size; i += kLanes) {
        int n = size - i < kLanes ? size - i : kLanes;
        Vec normed = round_to(mul(round_to(load(o + i, n), z), scale), z);
        store(out + i, mul(mul(load(weight + i, n), normed), silu(load(z + i, n))), n);
    }
}

template <typename S>
static GatedDeltaTable<S> gated_delta_table() {
    return {convolve<S>, set_length, gates<S>, delta_step, norm_and_gate<S>};
}
