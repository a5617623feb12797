// The vector type on AVX2: sixteen float lanes as two halves of eight. vec_avx512-inl.hpp defines what each function
// does.
//
// The results have the bits of AVX-512 without AVX512_BF16: operands and additions have the same order.
struct Vec {
    __m256 low, high;
};

#define HALVES(call, a) {call((a).low), call((a).high)}
#define BOTH(call, a, b) {call((a).low, (b).low), call((a).high, (b).high)}

INLINE Vec zeros() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE Vec splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE Vec iota() { return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15)}; }
INLINE float first_lane(Vec x) { return _mm256_cvtss_f32(x.low); }
INLINE Vec add(Vec a, Vec b) { return BOTH(_mm256_add_ps, a, b); }
INLINE Vec sub(Vec a, Vec b) { return BOTH(_mm256_sub_ps, a, b); }
INLINE Vec mul(Vec a, Vec b) { return BOTH(_mm256_mul_ps, a, b); }
INLINE Vec div(Vec a, Vec b) { return BOTH(_mm256_div_ps, a, b); }
INLINE Vec fma(Vec a, Vec b, Vec c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
INLINE Vec max(Vec a, Vec b) { return BOTH(_mm256_max_ps, a, b); }
INLINE Vec min(Vec a, Vec b) { return BOTH(_mm256_min_ps, a, b); }

INLINE __m256 less(__m256 a, __m256 b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
INLINE Vec where_less(Vec a, Vec b, Vec yes, Vec no) {
    return {_mm256_blendv_ps(no.low, yes.low, less(a.low, b.low)),
            _mm256_blendv_ps(no.high, yes.high, less(a.high, b.high))};
}

// A mask: all bits are set in lanes [0, n).
INLINE Vec first_lanes(int n) {
    Vec limit = splat(static_cast<float>(n));
    return BOTH(less, iota(), limit);
}
INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE Vec load(const float* p, int n) {
    Vec mask = first_lanes(n);
    return {_mm256_maskload_ps(p, _mm256_castps_si256(mask.low)),
            _mm256_maskload_ps(p + 8, _mm256_castps_si256(mask.high))};
}
INLINE void store(float* p, Vec x) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
}
INLINE void stream(float* p, Vec x) {
    _mm256_stream_ps(p, x.low);
    _mm256_stream_ps(p + 8, x.high);
}
INLINE void finish_streaming() { _mm_sfence(); }
INLINE void store(float* p, Vec x, int n) {
    Vec mask = first_lanes(n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(mask.low), x.low);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(mask.high), x.high);
}
INLINE Vec replace_tail(Vec x, int n, float fill) {
    Vec mask = first_lanes(n), fill_lanes = splat(fill);
    return {_mm256_blendv_ps(fill_lanes.low, x.low, mask.low), _mm256_blendv_ps(fill_lanes.high, x.high, mask.high)};
}

INLINE __m256 widen(__m128i half) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16)); }
INLINE Vec widen(__m256i all) { return {widen(_mm256_castsi256_si128(all)), widen(_mm256_extracti128_si256(all, 1))}; }
INLINE Vec load(const Bf16* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
INLINE Vec load(const Bf16* p, int n) {
    if (n == 16) return load(p);
    alignas(32) Bf16 all[16] = {};
    for (int i = 0; i < n; ++i) all[i] = p[i];
    return load(all);
}

// Round to nearest even; NaN stays NaN.
INLINE __m256i narrow(__m256 x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
}
INLINE __m256i narrow(Vec x) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(narrow(x.low), narrow(x.high)), 0xd8);
}
INLINE void store(Bf16* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x)); }
INLINE void store(Bf16* p, Vec x, int n) {
    if (n == 16) return store(p, x);
    alignas(32) Bf16 all[16];
    store(all, x);
    for (int i = 0; i < n; ++i) p[i] = all[i];
}
INLINE Vec round_to(Vec x, const Bf16*) { return widen(narrow(x)); }

INLINE float reduce_sum(Vec x) {
    __m256 a = _mm256_add_ps(x.low, x.high);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
INLINE float reduce_max(Vec x) {
    __m256 a = _mm256_max_ps(x.low, x.high);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

INLINE __m256 nearest_int(__m256 x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE Vec nearest_int(Vec x) { return HALVES(nearest_int, x); }
INLINE __m256 power_of_two(__m256 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
INLINE Vec ldexp(Vec p, Vec n) { return mul(p, HALVES(power_of_two, n)); }
INLINE __m256 is_finite(__m256 x) {
    return less(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x), _mm256_set1_ps(__builtin_inff()));
}
INLINE Vec clamp_finite(Vec x, Vec limit) {
    Vec mask = HALVES(is_finite, x), clamped = min(max(x, sub(zeros(), limit)), limit);
    return BOTH(_mm256_and_ps, mask, clamped);
}

// --- dot products ---------------------------------------------------------------------------------------

// A dot instruction of bfloat16 pairs in two steps: the even inputs, then the odd ones.
constexpr int kBf16DotSteps = 2;
INLINE __m256 evens(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
INLINE __m256 odds(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
template <int step>
INLINE Vec load_weights(const Bf16* p) {
    __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16));
    if constexpr (step == 0) return {evens(low), evens(high)};
    return {odds(low), odds(high)};
}
INLINE __m256i widen_int8(const int8_t* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
INLINE Vec load_int8(const int8_t* p) {
    return {_mm256_cvtepi32_ps(widen_int8(p)), _mm256_cvtepi32_ps(widen_int8(p + 8))};
}
template <int step>
INLINE Vec load_weights(const Int8<Bf16>* p) {
    return load_int8(&p->value + 16 * step);
}
INLINE __m256i join_pairs(__m256 even, __m256 odd) {
    return _mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(even), 16), _mm256_castps_si256(odd));
}
INLINE void widen_weights(const Int8<Bf16>* p, Bf16* out) {
    Vec even = load_weights<0>(p), odd = load_weights<1>(p);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), join_pairs(even.low, odd.low));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16), join_pairs(even.high, odd.high));
}
template <int step>
INLINE Vec broadcast_input(const Bf16* p) {
    int pair;
    __builtin_memcpy(&pair, p, 4);
    __m256 input = step == 0 ? evens(_mm256_set1_epi32(pair)) : odds(_mm256_set1_epi32(pair));
    return {input, input};
}

// --- transposition --------------------------------------------------------------------------------------

// An 8 x 8 transpose of 32-bit words; the rows of `out` are 16 words apart.
INLINE void transpose_8x8(const void* const* rows, int offset, char* out) {
    __m256i r[8], t[8];
    for (int i = 0; i < 8; ++i)
        r[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const char*>(rows[i]) + offset));
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 64 * i), _mm256_permute2x128_si256(r[i], r[4 + i], 0x20));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 64 * (4 + i)),
                            _mm256_permute2x128_si256(r[i], r[4 + i], 0x31));
    }
}
INLINE void transpose(const void* const* rows, int offset, void* out) {
    for (int half = 0; half < 2; ++half)
        for (int word = 0; word < 16; word += 8)
            transpose_8x8(rows + 8 * half, offset + 4 * word, static_cast<char*>(out) + 64 * word + 32 * half);
}

INLINE void interleave(const Bf16* a, const Bf16* b, Bf16* out) {
    __m256i x = _mm256_permute4x64_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(a)), 0xd8);
    __m256i y = _mm256_permute4x64_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_unpacklo_epi16(x, y));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16), _mm256_unpackhi_epi16(x, y));
}

// --- sampling -------------------------------------------------------------------------------------------

INLINE unsigned mask_ge(Vec a, Vec b) {
    unsigned low = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GE_OQ)));
    return low | static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_GE_OQ))) << 8;
}
// For each mask of eight lanes, the indices of the set lanes.
struct CompressIndices {
    uint8_t lanes[256][8];
};
static constexpr CompressIndices make_compress_indices() {
    CompressIndices indices{};
    for (int mask = 0; mask < 256; ++mask)
        for (int i = 0, n = 0; i < 8; ++i)
            if (mask >> i & 1) indices.lanes[mask][n++] = static_cast<uint8_t>(i);
    return indices;
}
static constexpr CompressIndices kCompressIndices = make_compress_indices();
INLINE int compress_store(float* to, __m256 x, unsigned mask) {
    __m128i lanes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kCompressIndices.lanes[mask]));
    _mm256_storeu_ps(to, _mm256_permutevar8x32_ps(x, _mm256_cvtepu8_epi32(lanes)));
    return __builtin_popcount(mask);
}
INLINE int compress_store(float* to, Vec x, unsigned mask) {
    int n = compress_store(to, x.low, mask & 0xff);
    return n + compress_store(to + n, x.high, mask >> 8);
}

struct FloatParts {
    Vec mantissa, exponent;
};
INLINE __m256i exponent_of(__m256 x) {
    return _mm256_srai_epi32(_mm256_sub_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(0x3f3504f3)), 23);
}
INLINE __m256 remove_exponent(__m256 x, __m256i exponent) {
    return _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(exponent, 23)));
}
INLINE FloatParts frexp(Vec x) {
    __m256i low = exponent_of(x.low), high = exponent_of(x.high);
    return {{remove_exponent(x.low, low), remove_exponent(x.high, high)},
            {_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)}};
}
INLINE Vec bits_to_float(Vec x) {
    return {_mm256_cvtepi32_ps(_mm256_castps_si256(x.low)), _mm256_cvtepi32_ps(_mm256_castps_si256(x.high))};
}

// a * factor modulo 2^64, from 32-bit products.
INLINE __m256i mul64(__m256i a, uint64_t factor) {
    __m256i b = _mm256_set1_epi64x(static_cast<int64_t>(factor)),
            upper = _mm256_set1_epi64x(static_cast<int64_t>(factor >> 32));
    __m256i crossed = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), b), _mm256_mul_epu32(a, upper));
    return _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64(crossed, 32));
}
// Four finalized states; their upper halves are the odd words.
INLINE __m256i splitmix64_x4(uint64_t state) {
    const __m256i steps = _mm256_setr_epi64x(0, static_cast<int64_t>(kGamma), static_cast<int64_t>(2 * kGamma),
                                             static_cast<int64_t>(3 * kGamma));
    __m256i z = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(state)), steps);
    z = mul64(_mm256_xor_si256(z, _mm256_srli_epi64(z, 30)), kFirstMultiplier);
    z = mul64(_mm256_xor_si256(z, _mm256_srli_epi64(z, 27)), kSecondMultiplier);
    return _mm256_xor_si256(z, _mm256_srli_epi64(z, 31));
}
// The upper 32 bits of eight outputs as floats. Both 16-bit parts are exact, so the addition is the only rounding.
INLINE __m256 splitmix64_x8(uint64_t state) {
    __m256 a = _mm256_castsi256_ps(splitmix64_x4(state)), b = _mm256_castsi256_ps(splitmix64_x4(state + 4 * kGamma));
    __m256i words = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)), 0xd8);
    __m256 upper = _mm256_cvtepi32_ps(_mm256_srli_epi32(words, 16));
    __m256 lower = _mm256_cvtepi32_ps(_mm256_and_si256(words, _mm256_set1_epi32(0xffff)));
    return _mm256_add_ps(_mm256_mul_ps(upper, _mm256_set1_ps(65536.0f)), lower);
}
INLINE Vec splitmix64(uint64_t state) { return {splitmix64_x8(state), splitmix64_x8(state + 8 * kGamma)}; }

struct DoubleVec {
    __m256d v[4];
};
INLINE DoubleVec zero_doubles() {
    return {{_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()}};
}
INLINE DoubleVec add(DoubleVec sums, Vec x) {
    return {{_mm256_add_pd(sums.v[0], _mm256_cvtps_pd(_mm256_castps256_ps128(x.low))),
             _mm256_add_pd(sums.v[1], _mm256_cvtps_pd(_mm256_extractf128_ps(x.low, 1))),
             _mm256_add_pd(sums.v[2], _mm256_cvtps_pd(_mm256_castps256_ps128(x.high))),
             _mm256_add_pd(sums.v[3], _mm256_cvtps_pd(_mm256_extractf128_ps(x.high, 1)))}};
}
INLINE double reduce_sum(DoubleVec sums) {
    __m256d b = _mm256_add_pd(_mm256_add_pd(sums.v[0], sums.v[2]), _mm256_add_pd(sums.v[1], sums.v[3]));
    __m128d c = _mm_add_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));
    return _mm_cvtsd_f64(_mm_add_sd(c, _mm_unpackhi_pd(c, c)));
}

#undef HALVES
#undef BOTH

// A block of 5 x 1 accumulators takes ten of the sixteen registers; the rest holds a half of a panel's weights, one
// row's inputs and constants.
constexpr bool kFewRegisters = true;
constexpr int kMaxRowBlock = 5;
constexpr int kDirectRowsOfBf16 = kUnlimited;  // see gemm-inl.hpp
constexpr int max_panel_block(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
