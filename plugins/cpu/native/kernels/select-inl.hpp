// What cut-offs and log-probabilities need of a row: exp sums, and the value at which a running sum reaches a target,
// found without sorting. Included by sample.hpp.

INLINE F tail(const float* x, int i, int size, float other) {
    return i + kLanes <= size ? load(x + i) : keep(load(x + i, size - i), size - i, other);
}
INLINE unsigned lanes_before(int n) { return n >= kLanes ? 0xffffu : (1u << n) - 1u; }

static double mass(const float* x, int size, float top) {
    const F nothing = splat(-__builtin_inff());
    Doubles sums = no_sums();
    for (int i = 0; i < size; i += kLanes)
        sums = add(sums, exp(sub(max(tail(x, i, size, -__builtin_inff()), nothing), splat(top))));
    return sum(sums);
}

static void weigh(const float* x, int size, float top, float* out) {
    for (int i = 0; i < size; i += kLanes)
        store(out + i, exp(sub(tail(x, i, size, 0.0f), splat(top))), size - i < kLanes ? size - i : kLanes);
}

static int keep_least(const float* x, int size, float least, float* out) {
    int n = 0;
    F border = splat(least);
    for (int i = 0; i < size; i += kLanes) {
        F each = tail(x, i, size, 0.0f);
        if (unsigned mask = at_least(each, border) & lanes_before(size - i)) n += compress(out + n, each, mask);
    }
    return n;
}

static int find_least(const float* x, int size, float least, int32_t* out) {
    int n = 0;
    F border = splat(least);
    for (int i = 0; i < size; i += kLanes)
        for (unsigned mask = at_least(tail(x, i, size, 0.0f), border) & lanes_before(size - i); mask; mask &= mask - 1)
            out[n++] = i + __builtin_ctz(mask);
    return n;
}

struct Range {
    float low, high;
};
INLINE Range range_of(const float* x, int size) {
    F high = splat(-__builtin_inff()), low = high;
    for (int i = 0; i < size; i += kLanes) {
        high = max(tail(x, i, size, -__builtin_inff()), high);
        low = max(sub(zeros(), tail(x, i, size, __builtin_inff())), low);
    }
    return {-maximum(low), maximum(high)};
}

// Of a few values: insertion sort, then the running sum.
INLINE float select_few(float* values, float* weights, int size, double above, double target) {
    for (int i = 1; i < size; ++i) {
        float value = values[i], weight = weights ? weights[i] : 1.0f;
        int at = i;
        for (; at > 0 && values[at - 1] < value; --at) {
            values[at] = values[at - 1];
            if (weights) weights[at] = weights[at - 1];
        }
        values[at] = value;
        if (weights) weights[at] = weight;
    }
    for (int i = 0; i < size; ++i) {
        above += weights ? weights[i] : 1.0f;
        if (above >= target) return values[i];
    }
    return values[size - 1];
}

// Halves the range of values until few are left, and goes on with the half in which the sum crosses the target: the
// arrays shrink with it, in place, and keep their order. Every cut puts the largest value above and the smallest below.
static float select(float* values, float* weights, int size, double target) {
    constexpr int kFew = 24;
    double above = 0.0;
    while (size > kFew) {
        Range range = range_of(values, size);
        if (range.low == range.high) return range.low;
        float middle = 0.5f * range.low + 0.5f * range.high;
        if (!(middle > range.low)) middle = range.high;
        F border = splat(middle);
        Doubles sums = no_sums();
        for (int i = 0; i < size; i += kLanes) {
            F weight = weights ? tail(weights, i, size, 0.0f) : splat(1.0f);
            sums = add(sums, where_less(tail(values, i, size, -__builtin_inff()), border, zeros(), weight));
        }
        double upper = above + sum(sums);
        bool is_above = upper >= target;
        if (!is_above) above = upper;
        int n = 0;
        for (int i = 0; i < size; i += kLanes) {
            F value = tail(values, i, size, 0.0f), weight = weights ? tail(weights, i, size, 0.0f) : value;
            unsigned mask = at_least(value, border);
            mask = (is_above ? mask : ~mask) & lanes_before(size - i);
            if (weights) compress(weights + n, weight, mask);
            n += compress(values + n, value, mask);
        }
        size = n;
    }
    return select_few(values, weights, size, above, target);
}
