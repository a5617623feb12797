// The vector type on NEON: sixteen float lanes as four vectors of four. vec_avx512-inl.hpp defines what each function
// does.
//
// Without BF16 instructions the results have the bits of AVX-512 without AVX512_BF16: operands and additions have the
// same order.
struct Vec {
    float32x4_t v[4];
};

#define QUARTERS(call, a) {call((a).v[0]), call((a).v[1]), call((a).v[2]), call((a).v[3])}
#define PAIRED(call, a, b) \
    {call((a).v[0], (b).v[0]), call((a).v[1], (b).v[1]), call((a).v[2], (b).v[2]), call((a).v[3], (b).v[3])}

INLINE Vec splat(float x) {
    float32x4_t four = vdupq_n_f32(x);
    return {{four, four, four, four}};
}
INLINE Vec zeros() { return splat(0.0f); }
INLINE Vec iota() {
    constexpr float kSteps[4] = {0, 1, 2, 3};
    float32x4_t four = vld1q_f32(kSteps);
    return {{four, vaddq_f32(four, vdupq_n_f32(4)), vaddq_f32(four, vdupq_n_f32(8)), vaddq_f32(four, vdupq_n_f32(12))}};
}
INLINE float first_lane(Vec x) { return vgetq_lane_f32(x.v[0], 0); }
INLINE Vec add(Vec a, Vec b) { return {PAIRED(vaddq_f32, a, b)}; }
INLINE Vec sub(Vec a, Vec b) { return {PAIRED(vsubq_f32, a, b)}; }
INLINE Vec mul(Vec a, Vec b) { return {PAIRED(vmulq_f32, a, b)}; }
INLINE Vec div(Vec a, Vec b) { return {PAIRED(vdivq_f32, a, b)}; }
INLINE Vec fma(Vec a, Vec b, Vec c) {
    return {{vfmaq_f32(c.v[0], a.v[0], b.v[0]), vfmaq_f32(c.v[1], a.v[1], b.v[1]), vfmaq_f32(c.v[2], a.v[2], b.v[2]),
             vfmaq_f32(c.v[3], a.v[3], b.v[3])}};
}
// Not fmax, which orders zeros, and NaN otherwise.
INLINE float32x4_t max(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
INLINE float32x4_t min(float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
INLINE Vec max(Vec a, Vec b) { return {PAIRED(max, a, b)}; }
INLINE Vec min(Vec a, Vec b) { return {PAIRED(min, a, b)}; }
INLINE Vec where_less(Vec a, Vec b, Vec yes, Vec no) {
    for (int i = 0; i < 4; ++i) yes.v[i] = vbslq_f32(vcltq_f32(a.v[i], b.v[i]), yes.v[i], no.v[i]);
    return yes;
}

INLINE Vec load(const float* p) { return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}}; }
INLINE void store(float* p, Vec x) {
    vst1q_f32(p, x.v[0]);
    vst1q_f32(p + 4, x.v[1]);
    vst1q_f32(p + 8, x.v[2]);
    vst1q_f32(p + 12, x.v[3]);
}
INLINE void stream(float* p, Vec x) { store(p, x); }
INLINE void finish_streaming() {}
INLINE Vec replace_tail(Vec x, int n, float fill) {
    return where_less(iota(), splat(static_cast<float>(n)), x, splat(fill));
}

INLINE Vec widen(uint16x8_t low, uint16x8_t high) {
    return {{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(low), 16)),
             vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(low), 16)),
             vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(high), 16)),
             vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(high), 16))}};
}
INLINE uint16x8_t load_eight(const Bf16* p) { return vld1q_u16(&p->bits); }
INLINE Vec load(const Bf16* p) { return widen(load_eight(p), load_eight(p + 8)); }

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
INLINE uint16x8_t narrow(float32x4_t a, float32x4_t b) {
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(a), b));
}
#else
// Round to nearest even; NaN stays NaN.
INLINE uint32x4_t rounded_bits(float32x4_t x) {
    uint32x4_t bits = vreinterpretq_u32_f32(x);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t up = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    return vbslq_u32(vceqq_f32(x, x), up, vorrq_u32(bits, vdupq_n_u32(0x400000)));
}
INLINE uint16x8_t narrow(float32x4_t a, float32x4_t b) {
    return vshrn_high_n_u32(vshrn_n_u32(rounded_bits(a), 16), rounded_bits(b), 16);
}
#endif
INLINE void store(Bf16* p, Vec x) {
    vst1q_u16(&p->bits, narrow(x.v[0], x.v[1]));
    vst1q_u16(&p[8].bits, narrow(x.v[2], x.v[3]));
}
INLINE Vec round_to(Vec x, const Bf16*) { return widen(narrow(x.v[0], x.v[1]), narrow(x.v[2], x.v[3])); }

template <typename T>
INLINE Vec load(const T* p, int n) {
    if (n == kLanes) return load(p);
    alignas(16) T all[kLanes] = {};
    for (int i = 0; i < n; ++i) all[i] = p[i];
    return load(all);
}
template <typename T>
INLINE void store(T* p, Vec x, int n) {
    if (n == kLanes) return store(p, x);
    alignas(16) T all[kLanes];
    store(all, x);
    for (int i = 0; i < n; ++i) p[i] = all[i];
}

INLINE float reduce_sum(Vec x) {
    float32x4_t four = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
    return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}
INLINE float reduce_max(Vec x) {
    float32x4_t four = max(max(x.v[0], x.v[2]), max(x.v[1], x.v[3]));
    four = max(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(max(four, vdupq_laneq_f32(four, 1)), 0);
}

INLINE Vec nearest_int(Vec x) { return {QUARTERS(vrndnq_f32, x)}; }
INLINE float32x4_t power_of_two(float32x4_t n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
INLINE Vec ldexp(Vec p, Vec n) {
    Vec powers = {QUARTERS(power_of_two, n)};
    return mul(p, powers);
}
INLINE float32x4_t zero_unless_finite(float32x4_t x, float32x4_t finite) {
    uint32x4_t mask = vcaltq_f32(x, vdupq_n_f32(__builtin_inff()));
    return vreinterpretq_f32_u32(vandq_u32(mask, vreinterpretq_u32_f32(finite)));
}
INLINE Vec clamp_finite(Vec x, Vec limit) {
    Vec clamped = min(max(x, sub(zeros(), limit)), limit);
    return {PAIRED(zero_unless_finite, x, clamped)};
}

// --- transposition --------------------------------------------------------------------------------------

// A 4 x 4 transpose of 32-bit words; the rows of `out` are 16 words apart.
INLINE void transpose_4x4(const void* const* rows, int offset, uint32_t* out) {
    uint32x4_t r[4];
    for (int i = 0; i < 4; ++i) r[i] = vreinterpretq_u32_u8(vld1q_u8(static_cast<const uint8_t*>(rows[i]) + offset));
    for (int half = 0; half < 2; ++half) {  // words 0 and 1, then 2 and 3
        uint32x4_t even = half ? vzip2q_u32(r[0], r[2]) : vzip1q_u32(r[0], r[2]);
        uint32x4_t odd = half ? vzip2q_u32(r[1], r[3]) : vzip1q_u32(r[1], r[3]);
        vst1q_u32(out + 32 * half, vzip1q_u32(even, odd));
        vst1q_u32(out + 32 * half + 16, vzip2q_u32(even, odd));
    }
}
INLINE void transpose(const void* const* rows, int offset, void* out) {
    for (int row = 0; row < 16; row += 4)
        for (int word = 0; word < 16; word += 4)
            transpose_4x4(rows + row, offset + 4 * word, static_cast<uint32_t*>(out) + 16 * word + row);
}

INLINE void interleave(const Bf16* a, const Bf16* b, Bf16* out) {
    for (int i = 0; i < kLanes; i += 8) {
        uint16x8x2_t both = {{load_eight(a + i), load_eight(b + i)}};  // of a name: clang's vst2q_u16 is a macro
        vst2q_u16(&out[2 * i].bits, both);
    }
}

// --- sampling -------------------------------------------------------------------------------------------

INLINE uint16x4_t ge(float32x4_t a, float32x4_t b) { return vmovn_u32(vcgeq_f32(a, b)); }
INLINE unsigned mask_ge(Vec a, Vec b) {
    constexpr uint16_t kBits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint16x8_t bits = vld1q_u16(kBits);
    uint16x8_t low = vcombine_u16(ge(a.v[0], b.v[0]), ge(a.v[1], b.v[1]));
    uint16x8_t high = vcombine_u16(ge(a.v[2], b.v[2]), ge(a.v[3], b.v[3]));
    return unsigned{vaddvq_u16(vandq_u16(low, bits))} | unsigned{vaddvq_u16(vandq_u16(high, bits))} << 8;
}
// For each mask of four lanes, the bytes of the set lanes.
struct CompressBytes {
    uint8_t bytes[16][16];
};
static constexpr CompressBytes make_compress_bytes() {
    CompressBytes table{};
    for (int mask = 0; mask < 16; ++mask)
        for (int i = 0, n = 0; i < 4; ++i)
            if (mask >> i & 1)
                for (int byte = 0; byte < 4; ++byte) table.bytes[mask][n++] = static_cast<uint8_t>(4 * i + byte);
    return table;
}
static constexpr CompressBytes kCompressBytes = make_compress_bytes();
INLINE int compress_store(float* to, Vec x, unsigned mask) {
    int n = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned of_four = mask >> 4 * i & 15u;
        uint8x16_t lanes = vqtbl1q_u8(vreinterpretq_u8_f32(x.v[i]), vld1q_u8(kCompressBytes.bytes[of_four]));
        vst1q_f32(to + n, vreinterpretq_f32_u8(lanes));
        n += __builtin_popcount(of_four);
    }
    return n;
}

struct FloatParts {
    Vec mantissa, exponent;
};
INLINE FloatParts frexp(Vec x) {
    FloatParts parts;
    for (int i = 0; i < 4; ++i) {
        int32x4_t bits = vreinterpretq_s32_f32(x.v[i]);
        int32x4_t exponent = vshrq_n_s32(vsubq_s32(bits, vdupq_n_s32(0x3f3504f3)), 23);
        parts.mantissa.v[i] = vreinterpretq_f32_s32(vsubq_s32(bits, vshlq_n_s32(exponent, 23)));
        parts.exponent.v[i] = vcvtq_f32_s32(exponent);
    }
    return parts;
}
INLINE Vec bits_to_float(Vec x) {
    for (float32x4_t& four : x.v) four = vcvtq_f32_s32(vreinterpretq_s32_f32(four));
    return x;
}

// NEON has no products of 64 bits: they are scalar.
INLINE Vec splitmix64(uint64_t state) {
    uint32_t upper[kLanes];
    for (uint64_t i = 0; i < kLanes; ++i) {
        uint64_t z = state + i * kGamma;
        z = (z ^ z >> 30) * kFirstMultiplier;
        z = (z ^ z >> 27) * kSecondMultiplier;
        upper[i] = static_cast<uint32_t>((z ^ z >> 31) >> 32);
    }
    Vec r;
    for (int i = 0; i < 4; ++i) r.v[i] = vcvtq_f32_u32(vld1q_u32(upper + 4 * i));
    return r;
}

struct DoubleVec {
    float64x2_t v[8];
};
INLINE DoubleVec zero_doubles() {
    DoubleVec r;
    for (float64x2_t& two : r.v) two = vdupq_n_f64(0.0);
    return r;
}
INLINE DoubleVec add(DoubleVec sums, Vec x) {
    for (int i = 0; i < 4; ++i) {
        sums.v[2 * i] = vaddq_f64(sums.v[2 * i], vcvt_f64_f32(vget_low_f32(x.v[i])));
        sums.v[2 * i + 1] = vaddq_f64(sums.v[2 * i + 1], vcvt_high_f64_f32(x.v[i]));
    }
    return sums;
}
INLINE double reduce_sum(DoubleVec sums) {
    for (int half = 4; half; half /= 2)
        for (int i = 0; i < half; ++i) sums.v[i] = vaddq_f64(sums.v[i], sums.v[i + half]);
    return vpaddd_f64(sums.v[0]);
}

#undef QUARTERS
#undef PAIRED
