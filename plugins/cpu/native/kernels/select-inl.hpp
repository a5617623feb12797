// Filters by value, and the threshold of top-k and top-p without sorting, over one row of logits.

// A mask of the first n lanes; n may exceed kLanes.
INLINE unsigned tail_mask(int n) { return n >= kLanes ? 0xffffu : (1u << n) - 1u; }

static int filter_at_least(const float* x, int size, float threshold, float* out) {
    int n = 0;
    Vec thresholds = splat(threshold);
    for (int i = 0; i < size; i += kLanes) {
        Vec values = load_or_fill(x, i, size, 0.0f);
        if (unsigned mask = mask_ge(values, thresholds) & tail_mask(size - i))
            n += compress_store(out + n, values, mask);
    }
    return n;
}

static int indices_at_least(const float* x, int size, float threshold, int32_t* out) {
    int n = 0;
    Vec thresholds = splat(threshold);
    for (int i = 0; i < size; i += kLanes) {
        unsigned mask = mask_ge(load_or_fill(x, i, size, 0.0f), thresholds) & tail_mask(size - i);
        for (; mask; mask &= mask - 1) out[n++] = i + __builtin_ctz(mask);
    }
    return n;
}

struct MinMax {
    float min, max;
};
INLINE MinMax min_max(const float* x, int size) {
    Vec maxima = splat(kNegInf), negated_minima = maxima;
    for (int i = 0; i < size; i += kLanes) {
        maxima = max(load_or_fill(x, i, size, kNegInf), maxima);
        negated_minima = max(sub(zeros(), load_or_fill(x, i, size, -kNegInf)), negated_minima);
    }
    return {-reduce_max(negated_minima), reduce_max(maxima)};
}

// Few values: insertion sort in descending order, then a running sum. `above`: the weight of all larger values.
INLINE float select_sorted(float* values, float* weights, int size, double above, double target) {
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

// Bisects the range of values and continues with the half where the running sum crosses the target, until few values
// are left. The arrays are compacted in place and keep their order. Each pivot leaves the largest value in the upper
// half and the smallest in the lower, so both are nonempty.
static float select_threshold(float* values, float* weights, int size, double target) {
    constexpr int kFew = 24;
    double above = 0.0;
    while (size > kFew) {
        MinMax range = min_max(values, size);
        if (range.min == range.max) return range.min;
        float pivot = 0.5f * range.min + 0.5f * range.max;
        if (!(pivot > range.min)) pivot = range.max;
        Vec pivots = splat(pivot);
        DoubleVec sums = zero_doubles();
        for (int i = 0; i < size; i += kLanes) {
            Vec weight = weights ? load_or_fill(weights, i, size, 0.0f) : splat(1.0f);
            sums = add(sums, where_less(load_or_fill(values, i, size, kNegInf), pivots, zeros(), weight));
        }
        double upper_sum = above + reduce_sum(sums);
        bool in_upper = upper_sum >= target;
        if (!in_upper) above = upper_sum;
        int n = 0;
        for (int i = 0; i < size; i += kLanes) {
            Vec value = load_or_fill(values, i, size, 0.0f);
            Vec weight = weights ? load_or_fill(weights, i, size, 0.0f) : value;
            unsigned mask = mask_ge(value, pivots);
            mask = (in_upper ? mask : ~mask) & tail_mask(size - i);
            if (weights) compress_store(weights + n, weight, mask);
            n += compress_store(values + n, value, mask);
        }
        size = n;
    }
    return select_sorted(values, weights, size, above, target);
}
