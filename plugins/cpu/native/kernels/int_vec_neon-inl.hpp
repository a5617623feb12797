// Vectors of integers on NEON, with or without dot products of bytes. int_vec_avx512-inl.hpp defines what each function
// does.

struct IntVec {
    int32x4_t v[4];
};
INLINE IntVec zero_ints() {
    int32x4_t zero = vdupq_n_s32(0);
    return {{zero, zero, zero, zero}};
}
INLINE IntVec load(const int32_t* p) { return {{vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)}}; }
INLINE void store(int32_t* p, IntVec x) {
    vst1q_s32(p, x.v[0]);
    vst1q_s32(p + 4, x.v[1]);
    vst1q_s32(p + 8, x.v[2]);
    vst1q_s32(p + 12, x.v[3]);
}
INLINE IntVec sub(IntVec a, IntVec b) {
    for (int i = 0; i < 4; ++i) a.v[i] = vsubq_s32(a.v[i], b.v[i]);
    return a;
}
INLINE Vec to_float(IntVec x) {
    Vec r;
    for (int i = 0; i < 4; ++i) r.v[i] = vcvtq_f32_s32(x.v[i]);
    return r;
}
INLINE int8x16_t to_bytes(Vec x) {
    int32x4_t ints[4];
    for (int i = 0; i < 4; ++i) ints[i] = vcvtnq_s32_f32(x.v[i]);
    int16x8_t low = vqmovn_high_s32(vqmovn_s32(ints[0]), ints[1]);
    int16x8_t high = vqmovn_high_s32(vqmovn_s32(ints[2]), ints[3]);
    return vqmovn_high_s16(vqmovn_s16(low), high);
}

// Inputs keep their sign: both factors of a product have one.
constexpr int kStoredOffset = 0;
INLINE void store(QuantizedInput* p, Vec x) { vst1q_u8(&p->value, vreinterpretq_u8_s8(to_bytes(x))); }

// sum + the products of four bytes of each output with four inputs. Without dot products, two products of numbers from
// -127 to 127 with bytes fit into 16 bits.
INLINE int32x4_t dot_bytes(int32x4_t sum, int8x16_t x, int8x16_t w) {
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, w, x);
#else
    return vpadalq_s16(sum, vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x)));
#endif
}

constexpr int kInt8DotSteps = 1;
struct WeightBytes {
    int8x16_t v[4];
};
struct InputBytes {
    int8x16_t v;
};
INLINE int8x16_t splat_four(const void* p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}
template <int step>
INLINE WeightBytes load_weights(const Int8<QuantizedInput>* p) {
    const int8_t* bytes = &p->value;
    return {{vld1q_s8(bytes), vld1q_s8(bytes + 16), vld1q_s8(bytes + 32), vld1q_s8(bytes + 48)}};
}
template <int step>
INLINE InputBytes broadcast_input(const QuantizedInput* p) {
    return {splat_four(p)};
}
INLINE IntVec dot(IntVec sum, InputBytes x, WeightBytes w) {
    return {{dot_bytes(sum.v[0], x.v, w.v[0]), dot_bytes(sum.v[1], x.v, w.v[1]), dot_bytes(sum.v[2], x.v, w.v[2]),
             dot_bytes(sum.v[3], x.v, w.v[3])}};
}
