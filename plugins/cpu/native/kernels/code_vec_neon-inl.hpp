// Codes of weights on NEON, with or without dot products of bytes. code_vec_avx512-inl.hpp defines what each function
// does.

struct CodeVec {
    uint8x16_t v[4];
};
// Unpacked codes lie in memory: each is loaded for some rows.
#ifdef __ARM_FEATURE_DOTPROD
constexpr int kCodedPanels = 1, kCodedRows = 4;
#else
constexpr int kCodedPanels = 1, kCodedRows = 2;
#endif

INLINE CodeVec load_codes(const uint8_t* p) {
    return {{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}};
}
INLINE CodeVec load_table(const uint8_t* p) {
    uint8x16_t all = vld1q_u8(p);
    return {{all, all, all, all}};
}
template <int n>
INLINE CodeVec shifted_left(CodeVec x) {
    for (uint8x16_t& part : x.v) part = vshlq_n_u8(part, n);
    return x;
}
template <int n>
INLINE CodeVec shifted_right(CodeVec x) {
    for (uint8x16_t& part : x.v) part = vshrq_n_u8(part, n);
    return x;
}
INLINE CodeVec masked(CodeVec x, int mask) {
    for (uint8x16_t& part : x.v) part = vandq_u8(part, vdupq_n_u8(static_cast<uint8_t>(mask)));
    return x;
}
INLINE CodeVec either(CodeVec a, CodeVec b) {
    for (int i = 0; i < 4; ++i) a.v[i] = vorrq_u8(a.v[i], b.v[i]);
    return a;
}
INLINE CodeVec looked_up(CodeVec table, CodeVec index) {
    for (int i = 0; i < 4; ++i) index.v[i] = vqtbl1q_u8(table.v[i], index.v[i]);
    return index;
}

template <int in>
INLINE float32x4_t four_floats(uint8x16_t x) {
    uint32x4_t word = vreinterpretq_u32_u8(x);
    if constexpr (in > 0) word = vshrq_n_u32(word, 8 * in);
    return vcvtq_f32_u32(vandq_u32(word, vdupq_n_u32(0xff)));
}
template <int in>
INLINE Vec to_floats(CodeVec x) {
    return {{four_floats<in>(x.v[0]), four_floats<in>(x.v[1]), four_floats<in>(x.v[2]), four_floats<in>(x.v[3])}};
}
INLINE Vec load_half(const uint8_t* p) {
    Vec r;
    for (int i = 0; i < 4; ++i) r.v[i] = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * i)));
    return r;
}
INLINE Vec load_uint8(const uint8_t* p) {
    uint8x16_t all = vld1q_u8(p);
    return to_float(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(all))), vreinterpretq_s16_u16(vmovl_high_u8(all)));
}
INLINE void store_bytes(int8_t* p, Vec x) { vst1q_s8(p, to_bytes(x)); }

// Both factors of a product have a sign: codes of 8 bits are centred.
template <int bits>
class CodeSums {
   public:
    static constexpr int kCentre = bits == 8 ? 128 : 0;
    void start(int32_t x) { UNROLLED for (int32x4_t& four : sums_.v) four = vdupq_n_s32(x); }
    ALWAYS_INLINE void add(int quad, CodeVec codes, const int8_t* inputs) {
        int8x16_t x = splat_four(inputs);
        UNROLLED for (int i = 0; i < 4; ++i) add_part(quad, i, signed_codes(codes.v[i]), x);
    }
    IntVec total() const { return sums_; }
    static ALWAYS_INLINE int8x16_t signed_codes(uint8x16_t codes) {
        return vreinterpretq_s8_u8(bits == 8 ? veorq_u8(codes, vdupq_n_u8(128)) : codes);
    }

   private:
#ifdef __ARM_FEATURE_DOTPROD
    ALWAYS_INLINE void add_part(int, int i, int8x16_t codes, int8x16_t x) {
        sums_.v[i] = dot_bytes(sums_.v[i], x, codes);
    }
#else
    ALWAYS_INLINE void add_part(int quad, int i, int8x16_t codes, int8x16_t x) {
        if constexpr (bits == 8) {
            sums_.v[i] = dot_bytes(sums_.v[i], x, codes);
        } else {  // products of some quads are added in 16 bits, before those of an output
            constexpr int kQuadsOfSum = kShortSums<bits>;
            bool begins = quad % kQuadsOfSum == 0;
            int8x8_t low = vget_low_s8(codes), low_x = vget_low_s8(x);
            low_[i] = begins ? vmull_s8(low, low_x) : vmlal_s8(low_[i], low, low_x);
            high_[i] = begins ? vmull_high_s8(codes, x) : vmlal_high_s8(high_[i], codes, x);
            if (quad % kQuadsOfSum == kQuadsOfSum - 1)
                sums_.v[i] = vpadalq_s16(sums_.v[i], vpaddq_s16(low_[i], high_[i]));
        }
    }
    int16x8_t low_[4], high_[4];
#endif
    IntVec sums_;
};
