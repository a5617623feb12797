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
INLINE IntVec splat_int(int32_t x) { return {_mm512_set1_epi32(x)}; }

// sum + the products of codes and four inputs. wide: codes may have 8 bits, else up to 6.
template <bool wide>
INLINE IntVec dot_codes(IntVec sum, CodeVec codes, const int8_t* inputs) {
    int four;
    __builtin_memcpy(&four, inputs, 4);
    __m512i x = _mm512_set1_epi32(four);
#ifdef __AVX512VNNI__
    return {_mm512_dpbusd_epi32(sum.v, codes.v, x)};
#else
    if constexpr (!wide) {
        __m512i pairs = _mm512_maddubs_epi16(codes.v, x);
        return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
    }
    __m512i even = _mm512_madd_epi16(_mm512_and_si512(codes.v, _mm512_set1_epi16(0xff)),
                                     _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8));
    __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(codes.v, 8), _mm512_srai_epi16(x, 8));
    return {_mm512_add_epi32(sum.v, _mm512_add_epi32(even, odd))};
#endif
}
