// The vector type on AVX-512: sixteen float lanes; dot products of bfloat16 pairs with or without AVX512_BF16.
//
// Like all -inl files, included once per instruction set, inside its namespace. Nothing here may have external linkage:
// the linker could pick code for another processor. The comments of this file define the functions of all vec files.
struct Vec {
    __m512 v;
};

INLINE Vec zeros() { return {_mm512_setzero_ps()}; }
INLINE Vec splat(float x) { return {_mm512_set1_ps(x)}; }
INLINE Vec iota() { return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}; }
INLINE float first_lane(Vec x) { return _mm512_cvtss_f32(x.v); }
INLINE Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
INLINE Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
INLINE Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
INLINE Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// If either operand is NaN, the result is b.
INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }

INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
INLINE Vec load(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
INLINE void store(float* p, Vec x) { _mm512_storeu_ps(p, x.v); }
INLINE void store(float* p, Vec x, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), x.v); }
// Past the caches. p: the beginning of a cache line. Other threads may see it only after `finish_streaming`.
INLINE void stream(float* p, Vec x) { _mm512_stream_ps(p, x.v); }
INLINE void finish_streaming() { _mm_sfence(); }
INLINE Vec where_less(Vec a, Vec b, Vec yes, Vec no) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
// Lanes [n, 16) become `fill`.
INLINE Vec replace_tail(Vec x, int n, float fill) {
    return {_mm512_mask_blend_ps(first_lanes(n), _mm512_set1_ps(fill), x.v)};
}

INLINE __m512i widen(__m256i half) { return _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16); }
INLINE Vec load(const Bf16* p) {
    return {_mm512_castsi512_ps(widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))))};
}
INLINE Vec load(const Bf16* p, int n) {
    return {_mm512_castsi512_ps(widen(_mm256_maskz_loadu_epi16(first_lanes(n), p)))};
}

#ifdef __AVX512BF16__
INLINE __m256i narrow(Vec x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.v)); }
#else
INLINE __m256i narrow(Vec x) {  // round to nearest even; NaN stays NaN
    __m512i bits = _mm512_castps_si512(x.v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
    up = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}
#endif
INLINE void store(Bf16* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x)); }
INLINE void store(Bf16* p, Vec x, int n) { _mm256_mask_storeu_epi16(p, first_lanes(n), narrow(x)); }
INLINE Vec round_to(Vec x, const Bf16*) { return {_mm512_castsi512_ps(widen(narrow(x)))}; }

// The upper half is added to the lower half, again and again: the same tree in every instruction set.
INLINE float reduce_sum(Vec x) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
INLINE float reduce_max(Vec x) { return _mm512_reduce_max_ps(x.v); }

// Round to nearest even; and p * 2^n for integral n in [-126, 127].
INLINE Vec nearest_int(Vec x) { return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
INLINE Vec ldexp(Vec p, Vec n) { return {_mm512_scalef_ps(p.v, n.v)}; }
// NaN and infinities become 0; the rest is clamped to [-limit, limit].
INLINE Vec clamp_finite(Vec x, Vec limit) {
    __mmask16 is_finite = _mm512_cmp_ps_mask(_mm512_abs_ps(x.v), _mm512_set1_ps(__builtin_inff()), _CMP_LT_OQ);
    Vec clamped = min(max(x, sub(zeros(), limit)), limit);
    return {_mm512_maskz_mov_ps(is_finite, clamped.v)};
}

// --- dot products ---------------------------------------------------------------------------------------

INLINE Vec load_int8(const int8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
// Pairs of bfloat16 from floats whose lower halves are zero.
INLINE __m512i join_pairs(Vec even, Vec odd) {
    return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even.v), 16), _mm512_castps_si512(odd.v));
}

// One K group of a packed panel: two consecutive weights of each of sixteen outputs. Without AVX512_BF16 a dot
// instruction takes two steps: the even inputs, then the odd ones.
#ifdef __AVX512BF16__
constexpr int kBf16DotSteps = 1;
struct Bf16Pairs {
    __m512i pairs;
};
template <int step>
INLINE Bf16Pairs load_weights(const Bf16* p) {
    return {_mm512_loadu_si512(p)};
}
template <int step>
INLINE Bf16Pairs load_weights(const Int8<Bf16>* p) {
    return {join_pairs(load_int8(&p->value), load_int8(&p->value + 16))};
}
template <int step>
INLINE Bf16Pairs broadcast_input(const Bf16* p) {
    int pair;
    __builtin_memcpy(&pair, p, 4);
    return {_mm512_set1_epi32(pair)};
}
INLINE Vec dot(Vec sum, Bf16Pairs x, Bf16Pairs w) {
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(x.pairs), reinterpret_cast<__m512bh>(w.pairs))};
}
#else
constexpr int kBf16DotSteps = 2;
template <int step>
INLINE Vec half_of_pairs(__m512i pairs) {
    if constexpr (step == 0) return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))};
    return {_mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}
template <int step>
INLINE Vec load_weights(const Bf16* p) {
    return half_of_pairs<step>(_mm512_loadu_si512(p));
}
template <int step>
INLINE Vec load_weights(const Int8<Bf16>* p) {
    return load_int8(&p->value + 16 * step);
}
template <int step>
INLINE Vec broadcast_input(const Bf16* p) {
    int pair;
    __builtin_memcpy(&pair, p, 4);
    return half_of_pairs<step>(_mm512_set1_epi32(pair));
}
#endif
// A K group of 8-bit weights as the bfloat16 weights that they are.
INLINE void widen_weights(const Int8<Bf16>* p, Bf16* out) {
    _mm512_storeu_si512(out, join_pairs(load_int8(&p->value), load_int8(&p->value + 16)));
}

// --- transposition --------------------------------------------------------------------------------------

// A 16 x 16 transpose of 32-bit words: word j of row i goes to out[16 * j + i].
INLINE void transpose(const void* const* rows, int offset, void* out) {
    __m512i r[16], t[16];
    for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(static_cast<const char*>(rows[i]) + offset);
    for (int i = 0; i < 8; ++i) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 4; ++i) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
    }
    char* to = static_cast<char*>(out);
    for (int i = 0; i < 4; ++i) {
        _mm512_storeu_si512(to + 64 * i, _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88));
        _mm512_storeu_si512(to + 64 * (4 + i), _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88));
        _mm512_storeu_si512(to + 64 * (8 + i), _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd));
        _mm512_storeu_si512(to + 64 * (12 + i), _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd));
    }
}

// a0 b0 a1 b1 ... a15 b15
INLINE void interleave(const Bf16* a, const Bf16* b, Bf16* out) {
    __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(a)));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)));
    _mm512_storeu_si512(out, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

// To p[0], p[2], ..., p[30].
INLINE void store_strided(Bf16* p, Vec x) {
    _mm512_mask_storeu_epi16(p, 0x55555555u, _mm512_cvtepu16_epi32(narrow(x)));
}

// --- sampling -------------------------------------------------------------------------------------------

// Bit i: a >= b in lane i; false for NaN.
INLINE unsigned mask_ge(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
// Stores the lanes in the mask contiguously and returns their number; writes up to sixteen floats.
INLINE int compress_store(float* to, Vec x, unsigned mask) {
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(static_cast<__mmask16>(mask), x.v));
    return __builtin_popcount(mask);
}

// x = mantissa * 2^exponent with mantissa in [sqrt(1/2), sqrt(2)), for normal positive x.
struct FloatParts {
    Vec mantissa, exponent;
};
INLINE FloatParts frexp(Vec x) {
    __m512i bits = _mm512_castps_si512(x.v), root = _mm512_set1_epi32(0x3f3504f3);
    __m512i exponent = _mm512_srai_epi32(_mm512_sub_epi32(bits, root), 23);
    __m512i mantissa = _mm512_sub_epi32(bits, _mm512_slli_epi32(exponent, 23));
    return {{_mm512_castsi512_ps(mantissa)}, {_mm512_cvtepi32_ps(exponent)}};
}
// The bits of positive x as an integer, converted to float.
INLINE Vec bits_to_float(Vec x) { return {_mm512_cvtepi32_ps(_mm512_castps_si512(x.v))}; }

// Lane i: the upper 32 bits of SplitMix64's finalizer of state + i * kGamma, rounded to float.
INLINE __m512i splitmix64_finalize(__m512i z) {
    z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 30)),
                           _mm512_set1_epi64(static_cast<int64_t>(kFirstMultiplier)));
    z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 27)),
                           _mm512_set1_epi64(static_cast<int64_t>(kSecondMultiplier)));
    return _mm512_xor_si512(z, _mm512_srli_epi64(z, 31));
}
INLINE Vec splitmix64(uint64_t state) {
    const __m512i steps =
        _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(static_cast<int64_t>(kGamma)));
    const __m512i uppers = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    __m512i low = splitmix64_finalize(_mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(state)), steps));
    __m512i high =
        splitmix64_finalize(_mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(state + 8 * kGamma)), steps));
    return {_mm512_cvtepu32_ps(_mm512_permutex2var_epi32(low, uppers, high))};
}

// Sixteen float64 sums.
struct DoubleVec {
    __m512d low, high;
};
INLINE DoubleVec zero_doubles() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
INLINE DoubleVec add(DoubleVec sums, Vec x) {
    return {_mm512_add_pd(sums.low, _mm512_cvtps_pd(_mm512_castps512_ps256(x.v))),
            _mm512_add_pd(sums.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1)))};
}
// The same tree as for floats.
INLINE double reduce_sum(DoubleVec sums) {
    __m512d a = _mm512_add_pd(sums.low, sums.high);
    __m256d b = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    __m128d c = _mm_add_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));
    return _mm_cvtsd_f64(_mm_add_sd(c, _mm_unpackhi_pd(c, c)));
}

// The register block of GEMM: at most kMaxRowBlock rows, and max_panel_block(rows) panels beside them.
constexpr bool kFewRegisters = false;
constexpr int kMaxRowBlock = 8;
#ifdef __AVX512BF16__  // to widen takes as long as three dot instructions
constexpr int kDirectRowsOfBf16 = 2 * kMaxRowBlock;
#else
constexpr int kDirectRowsOfBf16 = kUnlimited;
#endif
constexpr int max_panel_block(int rows) { return rows <= 2 ? 8 : rows <= 6 ? 4 : 2; }
