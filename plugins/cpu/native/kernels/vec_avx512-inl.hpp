// Sixteen float lanes on AVX-512, and products of bfloat16 pairs with or without the processor's own instruction.
//
// Included by one translation unit per instruction set, inside that set's namespace: nothing here may have external
// linkage, or the linker could pick code for another processor.
struct F {
    __m512 v;
};

INLINE F zeros() { return {_mm512_setzero_ps()}; }
INLINE F splat(float x) { return {_mm512_set1_ps(x)}; }
INLINE F iota() { return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}; }
INLINE float first_of(F x) { return _mm512_cvtss_f32(x.v); }
INLINE F add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
INLINE F sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
INLINE F mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
INLINE F div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
INLINE F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// Where a is NaN, b: the order of the operands matters.
INLINE F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
INLINE F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }

INLINE __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
INLINE F load(const float* p) { return {_mm512_loadu_ps(p)}; }
INLINE F load(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x.v); }
INLINE void store(float* p, F x, int n) { _mm512_mask_storeu_ps(p, first(n), x.v); }
INLINE F where_less(F a, F b, F yes, F no) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
// Lanes from n on become `other`.
INLINE F keep(F x, int n, float other) { return {_mm512_mask_blend_ps(first(n), _mm512_set1_ps(other), x.v)}; }

INLINE __m512i widen(__m256i half) { return _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16); }
INLINE F load(const Bf16* p) {
    return {_mm512_castsi512_ps(widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))))};
}
INLINE F load(const Bf16* p, int n) { return {_mm512_castsi512_ps(widen(_mm256_maskz_loadu_epi16(first(n), p)))}; }

#ifdef __AVX512BF16__
INLINE __m256i narrow(F x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.v)); }
#else
INLINE __m256i narrow(F x) {  // to nearest, ties to even; a NaN stays one
    __m512i bits = _mm512_castps_si512(x.v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
    up = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}
#endif
INLINE void store(Bf16* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x)); }
INLINE void store(Bf16* p, F x, int n) { _mm256_mask_storeu_epi16(p, first(n), narrow(x)); }
INLINE F rounded(F x, const Bf16*) { return {_mm512_castsi512_ps(widen(narrow(x)))}; }

// Halves are added to halves: the same tree in every instruction set.
INLINE float sum(F x) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
INLINE float maximum(F x) { return _mm512_reduce_max_ps(x.v); }

// x rounded to a whole number; p * 2^n for whole n in [-126, 127].
INLINE F round_to_whole(F x) { return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
INLINE F scaled(F p, F n) { return {_mm512_scalef_ps(p.v, n.v)}; }
// NaN and infinities become 0, the rest is clamped to [-limit, limit].
INLINE F finite(F x, F limit) {
    __mmask16 good = _mm512_cmp_ps_mask(_mm512_abs_ps(x.v), _mm512_set1_ps(__builtin_inff()), _CMP_LT_OQ);
    F clamped = min(max(x, sub(zeros(), limit)), limit);
    return {_mm512_maskz_mov_ps(good, clamped.v)};
}

// --- products of weights and inputs ---------------------------------------------------------------------

// One group of a packed panel: sixteen outputs, each with two neighbouring inputs' weights.
#ifdef __AVX512BF16__
struct BfWeights {
    __m512i pairs;
};
struct BfInput {
    __m512i pairs;
};
INLINE BfWeights weights(const Bf16* p) { return {_mm512_loadu_si512(p)}; }
INLINE BfInput input(const Bf16* p) {
    int pair;
    __builtin_memcpy(&pair, p, 4);
    return {_mm512_set1_epi32(pair)};
}
INLINE F dot(F sum, BfInput x, BfWeights w) {
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(x.pairs), reinterpret_cast<__m512bh>(w.pairs))};
}
#else
struct BfWeights {
    __m512 even, odd;
};
using BfInput = BfWeights;
INLINE BfWeights split(__m512i pairs) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}
INLINE BfWeights weights(const Bf16* p) { return split(_mm512_loadu_si512(p)); }
INLINE BfInput input(const Bf16* p) {
    int pair;
    __builtin_memcpy(&pair, p, 4);
    return split(_mm512_set1_epi32(pair));
}
INLINE F dot(F sum, BfInput x, BfWeights w) {
    return {_mm512_fmadd_ps(x.odd, w.odd, _mm512_fmadd_ps(x.even, w.even, sum.v))};
}
#endif

// --- layouts of keys and values -------------------------------------------------------------------------

// Sixteen rows of sixteen 32-bit words, transposed: word j of row i goes to out[16 * j + i].
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

// Sixteen numbers of a and of b, interleaved: a0 b0 a1 b1 ...
INLINE void interleave(const Bf16* a, const Bf16* b, Bf16* out) {
    __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(a)));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)));
    _mm512_storeu_si512(out, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

// Sixteen numbers to every second place.
INLINE void store_apart(Bf16* p, F x) { _mm512_mask_storeu_epi16(p, 0x55555555u, _mm512_cvtepu16_epi32(narrow(x))); }

// --- sampling -------------------------------------------------------------------------------------------

// Bit i: lane i of a is at least lane i of b. A NaN is not.
INLINE unsigned at_least(F a, F b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
// The lanes of the mask, side by side at `to`, which has room for sixteen. How many they are.
INLINE int compress(float* to, F x, unsigned mask) {
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(static_cast<__mmask16>(mask), x.v));
    return __builtin_popcount(mask);
}

// x = number * 2^exponent with number in [sqrt(1/2), sqrt(2)), for normal positive x.
struct Power {
    F number, exponent;
};
INLINE Power split_power(F x) {
    __m512i bits = _mm512_castps_si512(x.v), root = _mm512_set1_epi32(0x3f3504f3);
    __m512i exponent = _mm512_srai_epi32(_mm512_sub_epi32(bits, root), 23);
    __m512i number = _mm512_sub_epi32(bits, _mm512_slli_epi32(exponent, 23));
    return {{_mm512_castsi512_ps(number)}, {_mm512_cvtepi32_ps(exponent)}};
}
// The bits of positive x, read as a whole number.
INLINE F bits_of(F x) { return {_mm512_cvtepi32_ps(_mm512_castps_si512(x.v))}; }

// Lane i: the upper 32 bits of SplitMix64's finaliser of at + i * gamma, rounded to a float.
INLINE __m512i finalised(__m512i z) {
    z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 30)),
                           _mm512_set1_epi64(static_cast<int64_t>(kFirstMultiplier)));
    z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 27)),
                           _mm512_set1_epi64(static_cast<int64_t>(kSecondMultiplier)));
    return _mm512_xor_si512(z, _mm512_srli_epi64(z, 31));
}
INLINE F hashed(uint64_t at) {
    const __m512i steps =
        _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(static_cast<int64_t>(kGamma)));
    const __m512i uppers = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    __m512i low = finalised(_mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(at)), steps));
    __m512i high = finalised(_mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(at + 8 * kGamma)), steps));
    return {_mm512_cvtepu32_ps(_mm512_permutex2var_epi32(low, uppers, high))};
}

// Sums of sixteen lanes in float64.
struct Doubles {
    __m512d low, high;
};
INLINE Doubles no_sums() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
INLINE Doubles add(Doubles sums, F x) {
    return {_mm512_add_pd(sums.low, _mm512_cvtps_pd(_mm512_castps512_ps256(x.v))),
            _mm512_add_pd(sums.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1)))};
}
// Halves are added to halves, as in `sum` of floats.
INLINE double sum(Doubles sums) {
    __m512d a = _mm512_add_pd(sums.low, sums.high);
    __m256d b = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    __m128d c = _mm_add_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));
    return _mm_cvtsd_f64(_mm_add_sd(c, _mm_unpackhi_pd(c, c)));
}

constexpr int kMostRows = 8;
constexpr int most_panels(int rows) { return rows <= 2 ? 8 : rows <= 6 ? 4 : 2; }
