// Dot products of floats and of bfloat16 pairs on NEON, with or without BFDOT, and the register blocks of GEMM.
// vec_avx512-inl.hpp defines what each function does.

INLINE uint32x4_t load_four_pairs(const Bf16* p) { return vreinterpretq_u32_u16(load_eight(p)); }
INLINE uint32x4_t splat_pair(const Bf16* p) {
    uint32_t pair;
    __builtin_memcpy(&pair, p, 4);
    return vdupq_n_u32(pair);
}
INLINE Vec to_float(int16x8_t low, int16x8_t high) {
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
}
INLINE Vec load_int8(const int8_t* p) {
    int8x16_t all = vld1q_s8(p);
    return to_float(vmovl_s8(vget_low_s8(all)), vmovl_high_s8(all));
}
// Sixteen pairs of bfloat16.
struct Bf16Pairs {
    uint32x4_t v[4];
};
// From floats whose lower halves are zero.
INLINE Bf16Pairs join_pairs(Vec even, Vec odd) {
    Bf16Pairs pairs;
    for (int i = 0; i < 4; ++i)
        pairs.v[i] = vorrq_u32(vshrq_n_u32(vreinterpretq_u32_f32(even.v[i]), 16), vreinterpretq_u32_f32(odd.v[i]));
    return pairs;
}
INLINE Bf16Pairs load_int8_pairs(const Int8<Bf16>* p) {
    return join_pairs(load_int8(&p->value), load_int8(&p->value + 16));
}
INLINE void widen_weights(const Int8<Bf16>* p, Bf16* out) {
    Bf16Pairs pairs = load_int8_pairs(p);
    for (int i = 0; i < 4; ++i) vst1q_u16(&out[8 * i].bits, vreinterpretq_u16_u32(pairs.v[i]));
}

// One K group of a packed panel. Without BFDOT a dot product takes two steps: the even inputs, then the odd ones.
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
constexpr int kBf16DotSteps = 1;
struct Bf16Input {
    uint32x4_t v;
};
template <int step>
INLINE Bf16Pairs load_weights(const Bf16* p) {
    return {{load_four_pairs(p), load_four_pairs(p + 8), load_four_pairs(p + 16), load_four_pairs(p + 24)}};
}
template <int step>
INLINE Bf16Pairs load_weights(const Int8<Bf16>* p) {
    return load_int8_pairs(p);
}
template <int step>
INLINE Bf16Input broadcast_input(const Bf16* p) {
    return {splat_pair(p)};
}
INLINE float32x4_t dot(float32x4_t sum, Bf16Input x, uint32x4_t w) {
    return vbfdotq_f32(sum, vreinterpretq_bf16_u32(x.v), vreinterpretq_bf16_u32(w));
}
INLINE Vec dot(Vec sum, Bf16Input x, Bf16Pairs w) {
    return {{dot(sum.v[0], x, w.v[0]), dot(sum.v[1], x, w.v[1]), dot(sum.v[2], x, w.v[2]), dot(sum.v[3], x, w.v[3])}};
}
#else
constexpr int kBf16DotSteps = 2;
template <int step>
INLINE float32x4_t half_of_pairs(uint32x4_t pairs) {
    if constexpr (step == 0) return vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    return vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
}
template <int step>
INLINE Vec load_weights(const Bf16* p) {
    return {{half_of_pairs<step>(load_four_pairs(p)), half_of_pairs<step>(load_four_pairs(p + 8)),
             half_of_pairs<step>(load_four_pairs(p + 16)), half_of_pairs<step>(load_four_pairs(p + 24))}};
}
template <int step>
INLINE Vec load_weights(const Int8<Bf16>* p) {
    return load_int8(&p->value + 16 * step);
}
template <int step>
INLINE Vec broadcast_input(const Bf16* p) {
    float32x4_t input = half_of_pairs<step>(splat_pair(p));
    return {{input, input, input, input}};
}
#endif

// GCC keeps arrays of vectors in registers only if their loops are unrolled before all else.
#define UNROLLED _Pragma("GCC unroll 16")

// A block of 6 x 1 accumulators takes 24 of the 32 registers; the rest holds a panel's weights, one row's inputs and
// constants.
constexpr bool kFewRegisters = true;
constexpr int kMaxRowBlock = 6;
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC  // to widen takes longer than the products of two rows
constexpr int kDirectRowsOfBf16 = 2 * kMaxRowBlock;
#else
constexpr int kDirectRowsOfBf16 = kUnlimited;
#endif
constexpr int max_panel_block(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
