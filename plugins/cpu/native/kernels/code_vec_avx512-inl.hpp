// Codes of weights on AVX-512, with or without AVX512_VNNI. The comments of this file define the functions of all
// code_vec files.

// 64 bytes.
struct CodeVec {
    __m512i v;
};
constexpr int kCodedPanels = 2, kCodedRows = 1;  // what a microkernel multiplies: unpacked codes stay in registers

INLINE CodeVec load_codes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
INLINE CodeVec load_table(const uint8_t* p) {
    return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
// Bits may come from a neighbouring byte: mask them.
template <int n>
INLINE CodeVec shifted_left(CodeVec x) {
    return {_mm512_slli_epi16(x.v, n)};
}
template <int n>
INLINE CodeVec shifted_right(CodeVec x) {
    return {_mm512_srli_epi16(x.v, n)};
}
INLINE CodeVec masked(CodeVec x, int mask) {
    return {_mm512_and_si512(x.v, _mm512_set1_epi8(static_cast<char>(mask)))};
}
INLINE CodeVec either(CodeVec a, CodeVec b) { return {_mm512_or_si512(a.v, b.v)}; }
// table[index], of indices below 16
INLINE CodeVec looked_up(CodeVec table, CodeVec index) { return {_mm512_shuffle_epi8(table.v, index.v)}; }

// The codes of input `in` of a quad, as numbers.
template <int in>
INLINE Vec to_floats(CodeVec x) {
    __m512i all = in == 3 ? _mm512_srli_epi32(x.v, 24)
                          : _mm512_and_si512(_mm512_srli_epi32(x.v, 8 * in), _mm512_set1_epi32(0xff));
    return {_mm512_cvtepi32_ps(all)};
}
INLINE Vec load_half(const uint8_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
INLINE Vec load_uint8(const uint8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
// Integers from -128 to 127.
INLINE void store_bytes(int8_t* p, Vec x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x.v)));
}

// The sum of a number and of the products of quads of codes, below 2^bits, with their inputs. add: quad by quad, quad 0
// first, an even number of them. kCentre is what is subtracted from each code.
template <int bits>
class CodeSums {
   public:
    static constexpr int kCentre = 0;
#ifdef __AVX512VNNI__
    void start(int32_t x) { even_ = _mm512_set1_epi32(x), odd_ = _mm512_setzero_si512(); }
    ALWAYS_INLINE void add(int quad, CodeVec codes, const int8_t* inputs) {
        __m512i& sum = quad % 2 ? odd_ : even_;
        sum = _mm512_dpbusd_epi32(sum, codes.v, splat_four(inputs));
    }
    IntVec total() const { return {_mm512_add_epi32(even_, odd_)}; }

   private:
    __m512i even_, odd_;  // two chains: an addition waits for the one before it
#else
    void start(int32_t x) { ints_ = _mm512_set1_epi32(x); }
    ALWAYS_INLINE void add(int quad, CodeVec codes, const int8_t* inputs) {
        __m512i x = splat_four(inputs);
        if constexpr (bits == 8) {
            __m512i even = _mm512_madd_epi16(_mm512_and_si512(codes.v, _mm512_set1_epi16(0xff)),
                                             _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8));
            __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(codes.v, 8), _mm512_srai_epi16(x, 8));
            ints_ = _mm512_add_epi32(ints_, _mm512_add_epi32(even, odd));
        } else {
            __m512i products = _mm512_maddubs_epi16(codes.v, x);
            shorts_ = quad % kShortSums<bits> ? _mm512_add_epi16(shorts_, products) : products;
            if (quad % kShortSums<bits> == kShortSums<bits> - 1)
                ints_ = _mm512_add_epi32(ints_, _mm512_madd_epi16(shorts_, _mm512_set1_epi16(1)));
        }
    }
    IntVec total() const { return {ints_}; }

   private:
    __m512i ints_, shorts_;
#endif

    static __m512i splat_four(const int8_t* inputs) {
        int four;
        __builtin_memcpy(&four, inputs, 4);
        return _mm512_set1_epi32(four);
    }
};
