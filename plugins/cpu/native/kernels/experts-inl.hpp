// What a mixture of experts does to rows beside its linear maps.

// out[i] = x[i]
template <typename S>
static void widen(const S* x, int size, float* out) {
    for (int i = 0; i < size; i += kLanes) {
        int n = size - i < kLanes ? size - i : kLanes;
        store(out + i, load(x + i, n), n);
    }
}

// Rounds to S.
template <typename S>
static void round_inplace(float* x, int size) {
    for (int i = 0; i < size; i += kLanes) {
        int n = size - i < kLanes ? size - i : kLanes;
        store(x + i, round_to(load(x + i, n), static_cast<const S*>(nullptr)), n);
    }
}

// out = weights[0] * rows[0] + weights[1] * rows[1] ..., added in this order in float32, and rounded once.
template <typename S>
static void weighted_sum(const S* const* rows, const float* weights, int count, int size, S* out) {
    for (int i = 0; i < size; i += kLanes) {
        int n = size - i < kLanes ? size - i : kLanes;
        Vec sum = mul(load(rows[0] + i, n), splat(weights[0]));
        for (int j = 1; j < count; ++j) sum = add(sum, mul(load(rows[j] + i, n), splat(weights[j])));
        store(out + i, sum, n);
    }
}
