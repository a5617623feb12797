// RMSNorm (Zhang and Sennrich, 2019). The sum of squares is one chain per lane, then the tree of `reduce_sum`.

// A weight of S multiplies numbers that have been rounded to S; one of float, where S is narrower, multiplies before.
template <typename S, typename W>
static void rms_norm(Rows<const S> x, const W* weight, float eps, int size, Rows<S> out) {
    for (int r = 0; r < x.count; ++r) {
        const S* from = x.data + r * x.stride;
        S* to = out.data + r * out.stride;
        Vec squares = zeros();
        for (int i = 0; i < size; i += kLanes) {
            Vec part = load(from + i, size - i < kLanes ? size - i : kLanes);
            squares = fma(part, part, squares);
        }
        Vec scale = splat(1.0f / __builtin_sqrtf(reduce_sum(squares) / static_cast<float>(size) + eps));
        for (int i = 0; i < size; i += kLanes) {
            int n = size - i < kLanes ? size - i : kLanes;
            store(to + i, mul(round_to(mul(load(from + i, n), scale), weight), load(weight + i, n)), n);
        }
    }
}
