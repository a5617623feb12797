// Vectors of integers on AVX-512: dot products of quantised inputs, with or without AVX512_VNNI. The comments of this
// file define the functions of all int_vec files.

// Sixteen int32, which wrap around.
struct IntVec {
    __m512i v;
};
INLINE IntVec zero_ints() { return {_mm512_setzero_si512()}; }
INLINE IntVec load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
INLINE void store(int32_t* p, IntVec x) { _mm512_storeu_si512(p, x.v); }
INLINE IntVec sub(IntVec a, IntVec b) { return {_mm512_sub_epi32(a.v, b.v)}; }
INLINE Vec to_float(IntVec x) { return {_mm512_cvtepi32_ps(x.v)}; }
// What is added to an input before it is stored: kInputOffset, or 0.
constexpr int kStoredOffset = kInputOffset;
// x: integers in [-128, 127]
INLINE void store(QuantizedInput* p, Vec x) {
    __m512i integers = _mm512_add_epi32(_mm512_cvtps_epi32(x.v), _mm512_set1_epi32(kStoredOffset));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(integers));
}
INLINE __m512i splat_inputs(const QuantizedInput* p) { return _mm512_set1_epi32(four_inputs(p)); }

// One K group: four consecutive weights of each of sixteen outputs. Without AVX512_VNNI a dot instruction takes two
// steps, on integers of 16 bits: the first and third inputs, then the others.
#ifdef __AVX512VNNI__
constexpr int kInt8DotSteps = 1;
struct Bytes {
    __m512i v;
};
template <int step>
INLINE Bytes load_weights(const Int8<QuantizedInput>* p) {
    return {_mm512_loadu_si512(p)};
}
template <int step>
INLINE Bytes broadcast_input(const QuantizedInput* p) {
    return {splat_inputs(p)};
}
INLINE IntVec dot(IntVec sum, Bytes x, Bytes w) { return {_mm512_dpbusd_epi32(sum.v, x.v, w.v)}; }
#else
constexpr int kInt8DotSteps = 2;
struct Shorts {
    __m512i v;
};
template <int step>
INLINE Shorts load_weights(const Int8<QuantizedInput>* p) {
    __m512i all = _mm512_loadu_si512(p);
    return {_mm512_srai_epi16(step == 0 ? _mm512_slli_epi16(all, 8) : all, 8)};
}
template <int step>
INLINE Shorts broadcast_input(const QuantizedInput* p) {
    __m512i all = splat_inputs(p);
    return {step == 0 ? _mm512_and_si512(all, _mm512_set1_epi16(0xff)) : _mm512_srli_epi16(all, 8)};
}
INLINE IntVec dot(IntVec sum, Shorts x, Shorts w) { return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(x.v, w.v))}; }
#endif
