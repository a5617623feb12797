// Vectors of integers in plain C++. int_vec_avx512-inl.hpp defines what each function does.

struct IntVec {
    uint32_t v[16];  // of int32: overflow is defined
};
INLINE IntVec zero_ints() { return {}; }
INLINE IntVec load(const int32_t* p) {
    IntVec r;
    __builtin_memcpy(r.v, p, sizeof r.v);
    return r;
}
INLINE void store(int32_t* p, IntVec x) { __builtin_memcpy(p, x.v, sizeof x.v); }
INLINE IntVec sub(IntVec a, IntVec b) {
    for (int i = 0; i < kLanes; ++i) a.v[i] -= b.v[i];
    return a;
}
INLINE Vec to_float(IntVec x) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = static_cast<float>(static_cast<int32_t>(x.v[i]));
    return r;
}
constexpr int kStoredOffset = kInputOffset;
INLINE void store(QuantizedInput* p, Vec x) {
    for (int i = 0; i < kLanes; ++i) p[i].value = static_cast<uint8_t>(static_cast<int>(x.v[i]) + kStoredOffset);
}
constexpr int kInt8DotSteps = 1;
struct Weights8 {
    const Int8<QuantizedInput>* four_of_output;
};
struct Inputs8 {
    const QuantizedInput* four;
};
template <int step>
INLINE Weights8 load_weights(const Int8<QuantizedInput>* p) {
    return {p};
}
template <int step>
INLINE Inputs8 broadcast_input(const QuantizedInput* p) {
    return {p};
}
INLINE IntVec dot(IntVec sum, Inputs8 x, Weights8 w) {
    for (int i = 0; i < kLanes; ++i)
        for (int j = 0; j < 4; ++j)
            sum.v[i] += static_cast<uint32_t>(x.four[j].value * w.four_of_output[4 * i + j].value);
    return sum;
}
