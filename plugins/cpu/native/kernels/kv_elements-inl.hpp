// What the cache keeps of a key or a value: its numbers of type S, or integers of 8 bits (`Int8<S>`) and a scale.
//
// A number is its integer times the scale of its token and head. Integers are exact in S, so products with them are
// those of GEMM; the scale of a key multiplies its scores, and that of a value its probabilities.

template <typename W>
constexpr int kScaleBytes = 0;
template <typename S>
constexpr int kScaleBytes<Int8<S>> = sizeof(float);

constexpr float kLeastScaled = 0x1p-100f;  // keys and values of smaller numbers become 0: inverses stay finite

// Stores the lanes kVnni elements apart. A vec file may have a faster overload.
template <typename S>
INLINE void store_strided(S* p, Vec x) {
    S lanes[kLanes];
    store(lanes, x);
    for (int i = 0; i < kLanes; ++i) p[kVnni<S> * i] = lanes[i];
}

// A key or a value of `size` numbers on its way into the cache: NaN and infinities become 0, the rest is clamped to
// [-limit, limit].
template <typename S, typename W>
class KeptNumbers;

template <typename S>
class KeptNumbers<S, S> {
   public:
    KeptNumbers(const S* from, int /*size*/, float limit) : from_(from), limit_(limit) {}

    float scale() const { return 0.0f; }
    // Numbers [i, i + n), at most sixteen.
    void store_at(S* to, int i, int n) const { store(to, load_finite(i, n), n); }
    // Numbers [i, i + 16) to elements of a packed panel, from the first one's.
    void store_in_panel(S* to, int i) const { store_strided(to, load_finite(i, kLanes)); }

   private:
    Vec load_finite(int i, int n) const { return clamp_finite(load(from_ + i, n), splat(limit_)); }

    const S* from_;
    float limit_;
};

// Symmetric: the largest number becomes 127 or -127.
template <typename S>
class KeptNumbers<S, Int8<S>> {
   public:
    KeptNumbers(const S* from, int size, float limit) : from_(from), limit_(limit) {
        Vec largest = zeros();
        for (int i = 0; i < size; i += kLanes) {
            Vec x = load_finite(i, size - i < kLanes ? size - i : kLanes);
            largest = max(max(x, sub(zeros(), x)), largest);
        }
        float max_abs = reduce_max(largest);
        if (max_abs < kLeastScaled) return;
        scale_ = max_abs / 127.0f;
        inverse_ = 127.0f / max_abs;
    }

    float scale() const { return scale_; }
    void store_at(Int8<S>* to, int i, int n) const {
        float integers[kLanes];
        Vec nearest = nearest_int(mul(load_finite(i, n), splat(inverse_)));
        store(integers, max(min(nearest, splat(127.0f)), splat(-127.0f)));
        for (int j = 0; j < n; ++j) to[j].value = static_cast<int8_t>(integers[j]);
    }
    void store_in_panel(Int8<S>* to, int i) const { store_at(to, i, kLanes); }

   private:
    Vec load_finite(int i, int n) const { return clamp_finite(load(from_ + i, n), splat(limit_)); }

    const S* from_;
    float limit_, scale_ = 0.0f, inverse_ = 0.0f;
};

// `size` integers as numbers of type S.
template <typename S>
INLINE void widen_numbers(const Int8<S>* from, int size, S* to) {
    int i = 0;
    for (; i + kLanes <= size; i += kLanes) store(to + i, load_int8(&from[i].value));
    if (i == size) return;
    int8_t rest[kLanes] = {};
    __builtin_memcpy(rest, from + i, static_cast<size_t>(size - i));
    store(to + i, load_int8(rest), size - i);
}
