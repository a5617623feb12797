// Gated delta nets. Sums over rows of S are two chains, of even and of odd rows, for each column; those over a head's
// numbers are one chain per lane, then the tree of `reduce_sum`.

constexpr float kEpsOfLength = 1e-6f;
constexpr int kStepVectors = kFewRegisters ? 2 : 4;  // vectors of columns that share a pass over the rows

template <bool whole, typename T>
INLINE Vec load_lanes(const T* p, int n) {
    if constexpr (whole) return load(p);
    return load(p, n);
}
template <bool whole, typename T>
INLINE void store_lanes(T* p, Vec x, int n) {
    if constexpr (whole) return store(p, x);
    store(p, x, n);
}

// `vectors` whole vectors of channels, or the n < kLanes last ones.
template <int vectors, bool whole, typename S>
INLINE void convolve_lanes(const ConvInputs<S>& inputs, const float* taps, int num_channels, int channel, int n,
                           float* out) {
    Vec total[vectors];
    for (int c = 0; c < vectors; ++c) total[c] = zeros();
    auto add_tap = [&](int tap, const auto* input) {
        const float* weights = taps + ptrdiff_t{tap} * num_channels + channel;
        for (int c = 0; c < vectors; ++c)
            total[c] = fma(load_lanes<whole>(input + channel + c * kLanes, n),
                           load_lanes<whole>(weights + c * kLanes, n), total[c]);
    };
    int tap = 0;
    for (; tap < inputs.num_rows; ++tap) add_tap(tap, inputs.rows[tap]);
    for (; tap < inputs.num_taps; ++tap) add_tap(tap, inputs.window[tap]);
    for (int c = 0; c < vectors; ++c)
        store_lanes<whole>(out + c * kLanes, round_to(silu(total[c]), static_cast<const S*>(nullptr)), n);
}

template <typename S>
static void convolve(const ConvInputs<S>& inputs, const float* taps, int num_channels, int begin, int count,
                     float* out) {
    int i = 0;
    for (; i + kStepVectors * kLanes <= count; i += kStepVectors * kLanes)
        convolve_lanes<kStepVectors, true>(inputs, taps, num_channels, begin + i, kLanes, out + i);
    for (; i + kLanes <= count; i += kLanes)
        convolve_lanes<1, true>(inputs, taps, num_channels, begin + i, kLanes, out + i);
    if (i < count) convolve_lanes<1, false>(inputs, taps, num_channels, begin + i, count - i, out + i);
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

// Sums over the rows of S, of `vectors` vectors of columns: products with even rows of k, and with odd ones.
template <int vectors>
struct KeySums {
    Vec even[vectors], odd[vectors];

    INLINE KeySums none() {
        KeySums sums;
        for (int c = 0; c < vectors; ++c) sums.even[c] = sums.odd[c] = zeros();
        return sums;
    }
};

// `vectors` whole vectors of columns, or the n < kLanes last columns.
template <int vectors, bool whole>
INLINE void know_columns(const DeltaStep& s, int column, int n) {
    const float* from = s.from + column;
    auto sums = KeySums<vectors>::none();
    int row = 0;
    for (; row + 2 <= s.dk; row += 2, from += 2 * s.from_stride) {
        Vec first = splat(s.k[row]), second = splat(s.k[row + 1]);
        for (int c = 0; c < vectors; ++c) {
            sums.even[c] = fma(load_lanes<whole>(from + c * kLanes, n), first, sums.even[c]);
            sums.odd[c] = fma(load_lanes<whole>(from + s.from_stride + c * kLanes, n), second, sums.odd[c]);
        }
    }
    if (row < s.dk)
        for (int c = 0; c < vectors; ++c)
            sums.even[c] = fma(load_lanes<whole>(from + c * kLanes, n), splat(s.k[row]), sums.even[c]);
    for (int c = 0; c < vectors; ++c)
        store_lanes<whole>(s.known + column + c * kLanes, add(sums.even[c], sums.odd[c]), n);
}

// What a row of S needs of the step.
template <int vectors>
struct RowStep {
    Vec decay, delta[vectors], out[vectors];
};

template <int vectors, bool whole, bool has_next, bool only_to>
INLINE void step_row(const DeltaStep& s, int row, int column, int n, RowStep<vectors>& step, Vec* sums) {
    const float* from = s.from + row * s.from_stride + column;
    Vec k = splat(s.k[row]), q = splat(s.q[row]), x[vectors];
    for (int c = 0; c < vectors; ++c) {
        x[c] = fma(k, step.delta[c], mul(step.decay, load_lanes<whole>(from + c * kLanes, n)));
        step.out[c] = fma(x[c], q, step.out[c]);
    }
    if constexpr (has_next) {
        Vec next = splat(s.next_k[row]);
        for (int c = 0; c < vectors; ++c) sums[c] = fma(x[c], next, sums[c]);
    }
    if (only_to || s.to.data)
        for (int c = 0; c < vectors; ++c)
            store_lanes<whole>(s.to.data + row * s.to.stride + column + c * kLanes, x[c], n);
    if constexpr (only_to) return;
    if constexpr (whole)
        if (s.streamed.data)
            for (int c = 0; c < vectors; ++c)
                stream(s.streamed.data + row * s.streamed.stride + column + c * kLanes, x[c]);
    if (s.prefetched)
        for (int c = 0; c < vectors; ++c)
            __builtin_prefetch(s.prefetched + row * s.from_stride + column + c * kLanes, 0, 2);
}

// only_to: nothing is streamed or prefetched.
template <int vectors, bool whole, bool has_next, bool only_to>
INLINE void step_columns(const DeltaStep& given, int column, int n) {
    const DeltaStep s = given;  // in registers: stores of vectors may change any memory
    RowStep<vectors> step;
    step.decay = splat(s.decay);
    Vec beta = splat(s.beta);
    for (int c = 0; c < vectors; ++c) {
        Vec known = mul(step.decay, load_lanes<whole>(s.known + column + c * kLanes, n));
        step.delta[c] = mul(beta, sub(load_lanes<whole>(s.v + column + c * kLanes, n), known));
        step.out[c] = zeros();
        if (s.update) store_lanes<whole>(s.update + column + c * kLanes, step.delta[c], n);
    }
    auto sums = KeySums<vectors>::none();
    int row = 0;
    for (; row + 2 <= s.dk; row += 2) {
        step_row<vectors, whole, has_next, only_to>(s, row, column, n, step, sums.even);
        step_row<vectors, whole, has_next, only_to>(s, row + 1, column, n, step, sums.odd);
    }
    if (row < s.dk) step_row<vectors, whole, has_next, only_to>(s, row, column, n, step, sums.even);
    for (int c = 0; c < vectors; ++c) {
        store_lanes<whole>(s.out + column + c * kLanes, step.out[c], n);
        if constexpr (has_next) store_lanes<whole>(s.known + column + c * kLanes, add(sums.even[c], sums.odd[c]), n);
    }
}

static void delta_know(const DeltaStep& s, int columns) {
    int column = 0;
    for (; column + kStepVectors * kLanes <= columns; column += kStepVectors * kLanes)
        know_columns<kStepVectors, true>(s, column, kLanes);
    for (; column + kLanes <= columns; column += kLanes) know_columns<1, true>(s, column, kLanes);
    if (column < columns) know_columns<1, false>(s, column, columns - column);
}

template <bool has_next, bool only_to>
static void step_all_columns(const DeltaStep& s, int columns) {
    int column = 0;
    for (; column + kStepVectors * kLanes <= columns; column += kStepVectors * kLanes)
        step_columns<kStepVectors, true, has_next, only_to>(s, column, kLanes);
    for (; column + kLanes <= columns; column += kLanes) step_columns<1, true, has_next, only_to>(s, column, kLanes);
    if (column < columns) step_columns<1, false, has_next, only_to>(s, column, columns - column);
}

static void delta_step(const DeltaStep& s, int columns) {
    bool only_to = s.to.data && !s.streamed.data && !s.prefetched;
    if (s.next_k && only_to) return step_all_columns<true, true>(s, columns);  // nearly all tokens of a prompt
    if (s.next_k) return step_all_columns<true, false>(s, columns);
    step_all_columns<false, false>(s, columns);
}

// Two rows of S, which stay in registers over the tokens; or the last one, of an odd number of them.
template <int vectors, bool whole, int rows>
INLINE void follow_rows(const DeltaFollow& s, int row, int column, int n, KeySums<vectors>& sums) {
    Vec x[rows][vectors];
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < vectors; ++c)
            x[r][c] = load_lanes<whole>(s.from + (row + r) * s.from_stride + column + c * kLanes, n);
    for (int i = 0; i < s.num_tokens; ++i) {
        Vec decay = splat(s.decays[i]), k[rows];
        for (int r = 0; r < rows; ++r) k[r] = splat(s.k[i][row + r]);
        for (int c = 0; c < vectors; ++c) {
            Vec update = load_lanes<whole>(s.updates[i] + column + c * kLanes, n);
            for (int r = 0; r < rows; ++r) x[r][c] = fma(k[r], update, mul(decay, x[r][c]));
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < vectors; ++c) {
            store_lanes<whole>(s.to.data + (row + r) * s.to.stride + column + c * kLanes, x[r][c], n);
            if (s.prefetched) __builtin_prefetch(s.prefetched + (row + r) * s.from_stride + column + c * kLanes, 0, 2);
        }
    if (!s.next_k) return;
    for (int c = 0; c < vectors; ++c) {
        sums.even[c] = fma(x[0][c], splat(s.next_k[row]), sums.even[c]);
        if constexpr (rows == 2) sums.odd[c] = fma(x[1][c], splat(s.next_k[row + 1]), sums.odd[c]);
    }
}

template <int vectors, bool whole>
INLINE void follow_columns(const DeltaFollow& given, int column, int n) {
    const DeltaFollow s = given;
    auto sums = KeySums<vectors>::none();
    int row = 0;
    for (; row + 2 <= s.dk; row += 2) follow_rows<vectors, whole, 2>(s, row, column, n, sums);
    if (row < s.dk) follow_rows<vectors, whole, 1>(s, row, column, n, sums);
    if (!s.next_k) return;
    for (int c = 0; c < vectors; ++c)
        store_lanes<whole>(s.known + column + c * kLanes, add(sums.even[c], sums.odd[c]), n);
}

static void delta_follow(const DeltaFollow& s, int columns) {
    int column = 0;
    for (; column + kStepVectors * kLanes <= columns; column += kStepVectors * kLanes)
        follow_columns<kStepVectors, true>(s, column, kLanes);
    for (; column + kLanes <= columns; column += kLanes) follow_columns<1, true>(s, column, kLanes);
    if (column < columns) follow_columns<1, false>(s, column, columns - column);
}

static void finish_delta_streaming() { finish_streaming(); }

template <int vectors, bool whole, typename S>
INLINE void gate_lanes(const float* o, const S* z, const float* weight, Vec scale, int n, S* out) {
    Vec gated[vectors];
    for (int c = 0; c < vectors; ++c) {
        Vec normed = round_to(mul(round_to(load_lanes<whole>(o + c * kLanes, n), z), scale), z);
        gated[c] =
            mul(mul(load_lanes<whole>(weight + c * kLanes, n), normed), silu(load_lanes<whole>(z + c * kLanes, n)));
    }
    for (int c = 0; c < vectors; ++c) store_lanes<whole>(out + c * kLanes, gated[c], n);
}

template <typename S>
static void norm_and_gate(const float* o, const S* z, const float* weight, float eps, int size, S* out) {
    Vec squares = zeros();
    for (int i = 0; i < size; i += kLanes) {
        Vec part = round_to(load(o + i, size - i < kLanes ? size - i : kLanes), z);
        squares = fma(part, part, squares);
    }
    Vec scale = splat(1.0f / __builtin_sqrtf(reduce_sum(squares) / static_cast<float>(size) + eps));
    int i = 0;
    for (; i + kStepVectors * kLanes <= size; i += kStepVectors * kLanes)
        gate_lanes<kStepVectors, true>(o + i, z + i, weight + i, scale, kLanes, out + i);
    for (; i + kLanes <= size; i += kLanes) gate_lanes<1, true>(o + i, z + i, weight + i, scale, kLanes, out + i);
    if (i < size) gate_lanes<1, false>(o + i, z + i, weight + i, scale, size - i, out + i);
}

template <typename S>
static GatedDeltaTable<S> gated_delta_table() {
    return {convolve<S>,     set_length, gates<S>, delta_know, delta_step, delta_follow, finish_delta_streaming,
            norm_and_gate<S>};
}
