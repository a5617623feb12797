// Temperature and softmax sums over one row of logits. Additions have a fixed order, so the result is a function of the
// row alone.

static void divide(const float* x, int size, float divisor, float* out) {
    Vec divisors = splat(divisor);
    for (int i = 0; i < size; i += kLanes)
        store(out + i, max(div(load_or_fill(x, i, size, kNegInf), divisors), splat(kNegInf)),
              size - i < kLanes ? size - i : kLanes);
}

static double sum_exp(const float* x, int size, float row_max) {
    const Vec neg_inf = splat(kNegInf);
    DoubleVec sums = zero_doubles();
    for (int i = 0; i < size; i += kLanes)
        sums = add(sums, exp(sub(max(load_or_fill(x, i, size, kNegInf), neg_inf), splat(row_max))));
    return reduce_sum(sums);
}

static void exp_shifted(const float* x, int size, float row_max, float* out) {
    for (int i = 0; i < size; i += kLanes)
        store(out + i, exp(sub(load_or_fill(x, i, size, 0.0f), splat(row_max))), size - i < kLanes ? size - i : kLanes);
}
