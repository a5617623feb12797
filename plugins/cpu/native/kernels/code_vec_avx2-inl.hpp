// Codes of weights on AVX2, with or without AVX-VNNI. code_vec_avx512-inl.hpp defines what each function does.

struct CodeVec {
    __m256i low, high;
};
constexpr int kCodedPanels = 1, kCodedRows = 4;  // unpacked codes lie in memory: each is loaded for four rows

INLINE CodeVec load_codes(const uint8_t* p) { return {load_eight(p), load_eight(p + 32)}; }
INLINE CodeVec load_table(const uint8_t* p) {
    __m256i all = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {all, all};
}
template <int n>
INLINE CodeVec shifted_left(CodeVec x) {
    return {_mm256_slli_epi16(x.low, n), _mm256_slli_epi16(x.high, n)};
}
template <int n>
INLINE CodeVec shifted_right(CodeVec x) {
    return {_mm256_srli_epi16(x.low, n), _mm256_srli_epi16(x.high, n)};
}
INLINE CodeVec masked(CodeVec x, int mask) {
    __m256i all = _mm256_set1_epi8(static_cast<char>(mask));
    return {_mm256_and_si256(x.low, all), _mm256_and_si256(x.high, all)};
}
INLINE CodeVec either(CodeVec a, CodeVec b) { return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)}; }
INLINE CodeVec looked_up(CodeVec table, CodeVec index) {
    return {_mm256_shuffle_epi8(table.low, index.low), _mm256_shuffle_epi8(table.high, index.high)};
}

template <int in>
INLINE __m256 eight_floats(__m256i x) {
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(x, 8 * in), _mm256_set1_epi32(0xff)));
}
template <int in>
INLINE Vec to_floats(CodeVec x) {
    return {eight_floats<in>(x.low), eight_floats<in>(x.high)};
}
INLINE Vec load_half(const uint8_t* p) {
    const __m128i* eights = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(eights)), _mm256_cvtph_ps(_mm_loadu_si128(eights + 1))};
}
INLINE __m256 eight_uint8(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
INLINE Vec load_uint8(const uint8_t* p) { return {eight_uint8(p), eight_uint8(p + 8)}; }
INLINE IntVec splat_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }

template <bool wide>
INLINE __m256i add_eight(__m256i sum, __m256i codes, __m256i x) {
#ifdef __AVXVNNI__
    return _mm256_dpbusd_avx_epi32(sum, codes, x);
#else
    if constexpr (!wide)
        return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)));
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(0xff)),
                                     _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(codes, 8), _mm256_srai_epi16(x, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
#endif
}
template <bool wide>
INLINE IntVec dot_codes(IntVec sum, CodeVec codes, const int8_t* inputs) {
    int four;
    __builtin_memcpy(&four, inputs, 4);
    __m256i x = _mm256_set1_epi32(four);
    return {add_eight<wide>(sum.low, codes.low, x), add_eight<wide>(sum.high, codes.high, x)};
}
