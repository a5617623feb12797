// Codes of weights in plain C++. code_vec_avx512-inl.hpp defines what each function does.

struct CodeVec {
    uint8_t v[kQuadBytes];
};
constexpr int kCodedPanels = 1, kCodedRows = 1;

template <typename Change>
INLINE CodeVec of_each(CodeVec x, Change change) {
    for (uint8_t& byte : x.v) byte = static_cast<uint8_t>(change(byte));
    return x;
}
INLINE CodeVec load_codes(const uint8_t* p) {
    CodeVec r;
    __builtin_memcpy(r.v, p, sizeof r.v);
    return r;
}
INLINE CodeVec load_table(const uint8_t* p) {
    CodeVec r{};
    __builtin_memcpy(r.v, p, kLanes);
    return r;
}
template <int n>
INLINE CodeVec shifted_left(CodeVec x) {
    return of_each(x, [](int byte) { return byte << n; });
}
template <int n>
INLINE CodeVec shifted_right(CodeVec x) {
    return of_each(x, [](int byte) { return byte >> n; });
}
INLINE CodeVec masked(CodeVec x, int mask) {
    return of_each(x, [mask](int byte) { return byte & mask; });
}
INLINE CodeVec either(CodeVec a, CodeVec b) {
    for (int i = 0; i < kQuadBytes; ++i) a.v[i] |= b.v[i];
    return a;
}
INLINE CodeVec looked_up(CodeVec table, CodeVec index) {
    return of_each(index, [&](int byte) { return table.v[byte]; });
}

template <int in>
INLINE Vec to_floats(CodeVec x) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = static_cast<float>(x.v[4 * i + in]);
    return r;
}
INLINE Vec load_half(const uint8_t* p) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) {
        uint16_t half;
        __builtin_memcpy(&half, p + 2 * i, 2);
        r.v[i] = half_to_float(half);
    }
    return r;
}
INLINE Vec load_uint8(const uint8_t* p) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = static_cast<float>(p[i]);
    return r;
}
INLINE void store_bytes(int8_t* p, Vec x) {
    for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(x.v[i]);
}

template <int bits>
class CodeSums {
   public:
    static constexpr int kCentre = 0;
    void start(int32_t x) {
        for (uint32_t& sum : sums_.v) sum = static_cast<uint32_t>(x);
    }
    void add(int, CodeVec codes, const int8_t* inputs) {
        for (int i = 0; i < kLanes; ++i)
            for (int j = 0; j < 4; ++j) sums_.v[i] += static_cast<uint32_t>(codes.v[4 * i + j] * inputs[j]);
    }
    IntVec total() const { return sums_; }

   private:
    IntVec sums_;
};
