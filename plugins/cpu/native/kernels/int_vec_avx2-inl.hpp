// Vectors of integers on AVX2. int_vec_avx512-inl.hpp defines what each function does.

struct IntVec {
    __m256i low, high;
};
INLINE IntVec zero_ints() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
INLINE __m256i load_eight(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
INLINE IntVec load(const int32_t* p) { return {load_eight(p), load_eight(p + 8)}; }
INLINE void store(int32_t* p, IntVec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.high);
}
INLINE IntVec sub(IntVec a, IntVec b) { return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)}; }
INLINE Vec to_float(IntVec x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
constexpr int kStoredOffset = kInputOffset;
INLINE void store(QuantizedInput* p, Vec x) {
    __m256i shorts = _mm256_packs_epi32(_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high));
    shorts = _mm256_add_epi16(_mm256_permute4x64_epi64(shorts, 0xd8), _mm256_set1_epi16(kStoredOffset));
    __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(shorts), _mm256_extracti128_si256(shorts, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

INLINE __m256i splat_inputs(const QuantizedInput* p) { return _mm256_set1_epi32(four_inputs(p)); }

// One K group: in one step with AVX-VNNI, else in two, as on AVX-512.
#ifdef __AVXVNNI__
constexpr int kInt8DotSteps = 1;
struct WeightBytes {
    __m256i low, high;
};
struct InputBytes {
    __m256i v;
};
template <int step>
INLINE WeightBytes load_weights(const Int8<QuantizedInput>* p) {
    return {load_eight(p), load_eight(p + 32)};
}
template <int step>
INLINE InputBytes broadcast_input(const QuantizedInput* p) {
    return {splat_inputs(p)};
}
INLINE IntVec dot(IntVec sum, InputBytes x, WeightBytes w) {
    return {_mm256_dpbusd_avx_epi32(sum.low, x.v, w.low), _mm256_dpbusd_avx_epi32(sum.high, x.v, w.high)};
}
#else
constexpr int kInt8DotSteps = 2;
struct ShortWeights {
    __m256i low, high;
};
struct ShortInputs {
    __m256i v;
};
template <int step>
INLINE __m256i shorts_of(__m256i bytes) {
    return _mm256_srai_epi16(step == 0 ? _mm256_slli_epi16(bytes, 8) : bytes, 8);
}
template <int step>
INLINE ShortWeights load_weights(const Int8<QuantizedInput>* p) {
    return {shorts_of<step>(load_eight(p)), shorts_of<step>(load_eight(p + 32))};
}
template <int step>
INLINE ShortInputs broadcast_input(const QuantizedInput* p) {
    __m256i all = splat_inputs(p);
    return {step == 0 ? _mm256_and_si256(all, _mm256_set1_epi16(0xff)) : _mm256_srli_epi16(all, 8)};
}
INLINE IntVec dot(IntVec sum, ShortInputs x, ShortWeights w) {
    return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(x.v, w.low)),
            _mm256_add_epi32(sum.high, _mm256_madd_epi16(x.v, w.high))};
}
#endif
