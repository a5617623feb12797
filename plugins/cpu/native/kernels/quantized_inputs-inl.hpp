// Sums of linear maps whose weights and inputs have 8 bits.
//
// A sum of products of integers is exact in int32, so no order of additions can change it. An output adds its groups
// first to last: fma(integer sum of the group, scale of the inputs * scale of the weights, sum of the earlier groups).

constexpr float kSmallestInput = 1e-36f;  // groups of smaller ones count as zeros: the inverse scale would overflow

INLINE void store(QuantizedInput* to, Vec integers, int n) {
    if (n == kLanes) return store(to, integers);
    QuantizedInput all[kLanes];
    store(all, integers);
    __builtin_memcpy(to, all, static_cast<size_t>(n));
}

// What inputs that share a scale are multiplied by, and what gives them back.
struct InputScale {
    float inverse;  // 0: all of them count as zeros
    float scale;    // not a number if one of them is none, or infinite
};

class InputRange {
   public:
    void add(Vec inputs) {
        largest_ = max(max(inputs, sub(zeros(), inputs)), largest_);
        poison_ = fma(inputs, zeros(), poison_);
    }
    InputScale scale() const {
        float most = reduce_max(largest_), spoilt = reduce_sum(poison_);
        if (!(most >= kSmallestInput) || spoilt != 0.0f) return {0.0f, spoilt};
        return {127.0f / most, most / 127.0f};
    }

   private:
    Vec largest_ = zeros(), poison_ = zeros();
};

// The inputs that share a scale, and that scale.
template <typename S>
INLINE float quantize_group(const S* x, int size, QuantizedInput* to) {
    auto lanes = [&](int i) { return size - i < kLanes ? size - i : kLanes; };
    InputRange range;
    for (int i = 0; i < size; i += kLanes) range.add(load(x + i, lanes(i)));
    auto [inverse, scale] = range.scale();
    if (inverse == 0.0f) {
        __builtin_memset(to, kStoredOffset, static_cast<size_t>(size));  // zeros
        return scale;
    }
    Vec each = splat(inverse);
    for (int i = 0; i < size; i += kLanes) store(to + i, nearest_int(mul(load(x + i, lanes(i)), each)), lanes(i));
    return scale;
}

template <typename S>
static void quantize_inputs(const S* x, int size, int group_size, QuantizedInput* to, float* scales) {
    for (int begin = 0; begin < size; begin += group_size, ++scales) {
        int count = size - begin < group_size ? size - begin : group_size;
        *scales = quantize_group(x + begin, count, to + begin);
    }
}

// Up to kBlockPanels consecutive panels of a linear map, times quantised rows.
template <typename S>
class QuantizedBlock {
   public:
    QuantizedBlock(const Linear<S>& w, const QuantizedInputs& x, int first, int panels, ReadNext next)
        : w_(w), x_(x), first_(first), panels_(panels), next_(view(next.weights)), pages_(next.pages) {}

    // out[rows][16 * panels] = x * w, of `rows` rows from `row` on
    void multiply(int row, int rows, float* out, ptrdiff_t out_stride) const {
        alignas(64) int32_t sums[kBlockRows * kBlockPanels * kLanes];
        constexpr int kInputs = kVnni<QuantizedInput>;
        int k_groups = w_.k_groups(), num_groups = w_.num_scale_groups();
        int of_scale = num_groups == 1 ? k_groups : w_.group_size / kInputs;
        ptrdiff_t width = panels_ * kLanes;
        Int8Panels w = view(w_.panel(first_));
        for (int group = 0, g = 0; group < num_groups; ++group, g += of_scale) {
            int count = k_groups - g < of_scale ? k_groups - g : of_scale;
            Int8Panels later = group + 1 < num_groups ? w.from(0, g + of_scale) : next_;
            gemm<QuantizedInput>(x_.data + row * x_.stride + ptrdiff_t{g} * kInputs, rows, w.from(0, g), panels_, count,
                                 sums, RowStrides{x_.stride, width}, later, pages_);
            add_scaled(sums, row, rows, group, num_groups, out, out_stride);
        }
    }

   private:
    Int8Panels view(const void* panels) const {
        return {static_cast<const Int8<QuantizedInput>*>(panels), w_.panel_stride()};
    }

    void add_scaled(const int32_t* sums, int row, int rows, int group, int num_groups, float* out,
                    ptrdiff_t out_stride) const {
        ptrdiff_t of_group = (ptrdiff_t{group} * w_.num_panels() + first_) * kLanes;
        for (int p = 0; p < panels_; ++p) {
            Vec scale = load(w_.scales + of_group + p * kLanes);
            IntVec correction = load(w_.corrections + of_group + p * kLanes);
            const int32_t* from = sums + p * kLanes;
            float* to = out + p * kLanes;
            for (int r = 0; r < rows; ++r, from += panels_ * kLanes, to += out_stride) {
                Vec both = mul(splat(x_.scales[ptrdiff_t{row + r} * num_groups + group]), scale);
                IntVec integers = load(from);
                Vec sum = to_float(kStoredOffset ? sub(integers, correction) : integers);
                store(to, group == 0 ? mul(sum, both) : fma(sum, both, load(to)));
            }
        }
    }

    const Linear<S>& w_;
    const QuantizedInputs& x_;
    int first_, panels_;
    Int8Panels next_;
    PagesAhead* pages_;
};
