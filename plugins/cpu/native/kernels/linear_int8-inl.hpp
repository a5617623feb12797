// Sums of linear maps with weights of 8 bits.
//
// Their integers are exact in bfloat16 and float32. So the sum over the inputs that share a scale is the chain that
// GEMM computes for weights of the model's dtype, and how rows are blocked, or where integers are widened, changes no
// bit. An output adds its groups first to last: fma(sum of the group, scale, sum of the earlier groups).

// Memory of one thread for widened weights; it grows.
class WideScratch {
   public:
    ~WideScratch() { free(memory_); }
    void* get(size_t bytes) {
        if (bytes > size_) {
            free(memory_);
            size_ = (bytes + 63) / 64 * 64;
            memory_ = aligned_alloc(64, size_);
            if (!memory_) __builtin_trap();
        }
        return memory_;
    }

   private:
    void* memory_ = nullptr;
    size_t size_ = 0;
};
static thread_local WideScratch wide_scratch[2];

constexpr int kWideBytes = 1 << 18;  // widened weights of a block of panels: they should stay in the L2 cache
constexpr int kWidePanels = 2;       // at least this many, however large they are: a row block multiplies two at a time

// out = sums * scales, added to `out` unless it is the first group. `sums` may be `out`.
INLINE void scale_sums(const float* sums, ptrdiff_t sums_stride, int rows, int panels, const float* scales,
                       bool is_first, float* out, ptrdiff_t out_stride) {
    for (int p = 0; p < panels; ++p) {
        Vec scale = load(scales + p * kLanes);
        for (int r = 0; r < rows; ++r) {
            Vec sum = load(sums + r * sums_stride + p * kLanes);
            float* to = out + r * out_stride + p * kLanes;
            store(to, is_first ? mul(sum, scale) : fma(sum, scale, load(to)));
        }
    }
}

// Up to kBlockPanels consecutive panels of 8-bit weights.
template <typename S>
class Int8Block {
   public:
    // rows: how many the block will be multiplied by, in all. part: 0 or 1; blocks of different parts may be used in
    // turn.
    Int8Block(const Linear<S>& w, int first, int panels, ReadNext next, int rows, int part)
        : w_(w), first_(first), panels_(panels), next_(static_cast<const Int8<S>*>(next.weights)), pages_(next.pages) {
        if (rows <= kDirectRows<S>) return;
        ptrdiff_t count = panels * w.panel_stride();
        wide_ = static_cast<S*>(wide_scratch[part].get(static_cast<size_t>(count) * sizeof(S)));
        for (ptrdiff_t i = 0; i < count; i += kLanes * kVnni<S>) widen_weights(integers() + i, wide_ + i);
    }

    static int max_panels(const Linear<S>& w, int rows) {
        if (rows <= kDirectRows<S>) return kBlockPanels;
        ptrdiff_t fitting = kWideBytes / (w.panel_stride() * static_cast<ptrdiff_t>(sizeof(S)));
        return fitting < kWidePanels ? kWidePanels : fitting < kBlockPanels ? static_cast<int>(fitting) : kBlockPanels;
    }

    // out[rows][16 * panels] = x * w
    void multiply(const S* x, int rows, float* out, RowStrides strides) const {
        ptrdiff_t stride = w_.panel_stride();
        if (wide_) return multiply_groups(x, rows, Panels<S>{wide_, stride}, Panels<S>{wide_, stride}, out, strides);
        if constexpr (kDirectRows<S> > 0)
            multiply_groups(x, rows, Panels<S, Int8<S>>{integers(), stride}, Panels<S, Int8<S>>{next_, stride}, out,
                            strides);
    }

   private:
    const Int8<S>* integers() const { return static_cast<const Int8<S>*>(w_.panel(first_)); }

    template <typename Weights>
    void multiply_groups(const S* x, int rows, Weights w, Weights next, float* out, RowStrides strides) const {
        int k_groups = w_.k_groups(), of_scale = w_.group_size / kVnni<S>;
        const float* scales = w_.scales + first_ * kLanes;
        if (of_scale >= k_groups) {
            gemm<S>(x, rows, w, panels_, k_groups, out, strides, next, pages_);
            return scale_sums(out, strides.out, rows, panels_, scales, true, out, strides.out);
        }
        alignas(64) float sums[kBlockRows * kBlockPanels * kLanes];
        ptrdiff_t width = panels_ * kLanes;
        for (int g = 0; g < k_groups; g += of_scale, scales += ptrdiff_t{w_.num_panels()} * kLanes) {
            int count = k_groups - g < of_scale ? k_groups - g : of_scale;
            Weights later = g + of_scale < k_groups ? w.from(0, g + of_scale) : next;
            gemm<S>(x + ptrdiff_t{g} * kVnni<S>, rows, w.from(0, g), panels_, count, sums, {strides.x, width}, later,
                    pages_);
            scale_sums(sums, width, rows, panels_, scales, g == 0, out, strides.out);
        }
    }

    const Linear<S>& w_;
    int first_, panels_;
    const Int8<S>* next_;
    PagesAhead* pages_;
    S* wide_ = nullptr;
};
