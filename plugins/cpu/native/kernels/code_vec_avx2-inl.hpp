// Codes of weights on AVX2, with or without AVX-VNNI. code_vec_avx512-inl.hpp defines what each function does.

struct CodeVec {
    __m256i low, high;
};
// Unpacked codes lie in memory: each is loaded for some rows.
#ifdef __AVXVNNI__
constexpr int kCodedPanels = 1, kCodedRows = 4;
#else
constexpr int kCodedPanels = 1, kCodedRows = 2;
#endif

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
INLINE void store_bytes(int8_t* p, Vec x) {
    __m256i shorts = _mm256_packs_epi32(_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high));
    shorts = _mm256_permute4x64_epi64(shorts, 0xd8);
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(shorts), _mm256_extracti128_si256(shorts, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

template <int bits>
class CodeSums {
   public:
#ifdef __AVXVNNI__
    static constexpr int kCentre = 0;
#else
    static constexpr int kCentre = bits == 8 ? 128 : 0;
#endif
    void start(int32_t x) { low_.ints = high_.ints = _mm256_set1_epi32(x); }
    ALWAYS_INLINE void add(int quad, CodeVec codes, const int8_t* inputs) {
        int four;
        __builtin_memcpy(&four, inputs, 4);
        __m256i x = _mm256_set1_epi32(four);
        low_.add(quad, codes.low, x);
        high_.add(quad, codes.high, x);
    }
    IntVec total() const { return {low_.ints, high_.ints}; }

   private:
    struct Eight {
        __m256i ints;
#ifdef __AVXVNNI__
        ALWAYS_INLINE void add(int, __m256i codes, __m256i x) { ints = _mm256_dpbusd_avx_epi32(ints, codes, x); }
#else
        __m256i shorts;

        ALWAYS_INLINE void add(int quad, __m256i codes, __m256i x) {
            if constexpr (bits == 8) {  // absolute values times inputs that have the sign of the product
                __m256i centred = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
                __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(centred), _mm256_sign_epi8(x, centred));
                ints = _mm256_add_epi32(ints, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
            } else {
                __m256i products = _mm256_maddubs_epi16(codes, x);
                shorts = quad % kShortSums<bits> ? _mm256_add_epi16(shorts, products) : products;
                if (quad % kShortSums<bits> == kShortSums<bits> - 1)
                    ints = _mm256_add_epi32(ints, _mm256_madd_epi16(shorts, _mm256_set1_epi16(1)));
            }
        }
#endif
    };
    Eight low_, high_;
};
