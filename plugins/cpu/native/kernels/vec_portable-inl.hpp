// The vector type in plain C++, for all other processors. vec_avx512-inl.hpp defines what each function does.

struct Vec {
    float v[16];
};

#define EACH_LANE for (int i = 0; i < 16; ++i)
INLINE Vec splat(float x) {
    Vec r;
    EACH_LANE r.v[i] = x;
    return r;
}
INLINE Vec zeros() { return splat(0.0f); }
INLINE Vec iota() {
    Vec r;
    EACH_LANE r.v[i] = static_cast<float>(i);
    return r;
}
INLINE float first_lane(Vec x) { return x.v[0]; }
INLINE Vec add(Vec a, Vec b) {
    EACH_LANE a.v[i] += b.v[i];
    return a;
}
INLINE Vec sub(Vec a, Vec b) {
    EACH_LANE a.v[i] -= b.v[i];
    return a;
}
INLINE Vec mul(Vec a, Vec b) {
    EACH_LANE a.v[i] *= b.v[i];
    return a;
}
INLINE Vec div(Vec a, Vec b) {
    EACH_LANE a.v[i] /= b.v[i];
    return a;
}
// Two roundings: without the instruction, a fused multiply-add is a library call of a hundred cycles.
INLINE Vec fma(Vec a, Vec b, Vec c) {
    EACH_LANE c.v[i] += a.v[i] * b.v[i];
    return c;
}
INLINE Vec max(Vec a, Vec b) {
    EACH_LANE a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
}
INLINE Vec min(Vec a, Vec b) {
    EACH_LANE a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
    return a;
}

INLINE Vec where_less(Vec a, Vec b, Vec yes, Vec no) {
    EACH_LANE yes.v[i] = a.v[i] < b.v[i] ? yes.v[i] : no.v[i];
    return yes;
}

INLINE Vec load(const float* p) {
    Vec r;
    EACH_LANE r.v[i] = p[i];
    return r;
}
INLINE Vec load(const float* p, int n) {
    Vec r;
    EACH_LANE r.v[i] = i < n ? p[i] : 0.0f;
    return r;
}
INLINE void store(float* p, Vec x) { EACH_LANE p[i] = x.v[i]; }
INLINE void stream(float* p, Vec x) { store(p, x); }
INLINE void finish_streaming() {}
INLINE void store(float* p, Vec x, int n) {
    for (int i = 0; i < n; ++i) p[i] = x.v[i];
}
INLINE Vec replace_tail(Vec x, int n, float fill) {
    for (int i = n; i < 16; ++i) x.v[i] = fill;
    return x;
}

INLINE float widen(Bf16 x) {
    uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
    float wide;
    __builtin_memcpy(&wide, &bits, 4);
    return wide;
}
INLINE Bf16 narrow(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    if (x != x) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
    return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
INLINE Vec load(const Bf16* p) {
    Vec r;
    EACH_LANE r.v[i] = widen(p[i]);
    return r;
}
INLINE Vec load(const Bf16* p, int n) {
    Vec r;
    EACH_LANE r.v[i] = i < n ? widen(p[i]) : 0.0f;
    return r;
}
INLINE void store(Bf16* p, Vec x) { EACH_LANE p[i] = narrow(x.v[i]); }
INLINE void store(Bf16* p, Vec x, int n) {
    for (int i = 0; i < n; ++i) p[i] = narrow(x.v[i]);
}
INLINE Vec round_to(Vec x, const Bf16*) {
    EACH_LANE x.v[i] = widen(narrow(x.v[i]));
    return x;
}

INLINE float reduce_sum(Vec x) {
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; ++i) x.v[i] += x.v[i + half];
    return x.v[0];
}
INLINE float reduce_max(Vec x) {
    float best = x.v[0];
    EACH_LANE best = x.v[i] > best ? x.v[i] : best;
    return best;
}

INLINE Vec nearest_int(Vec x) {
    EACH_LANE x.v[i] = __builtin_rintf(x.v[i]);
    return x;
}
INLINE Vec ldexp(Vec p, Vec n) {
    EACH_LANE {
        uint32_t bits = n.v[i] == n.v[i] ? static_cast<uint32_t>(static_cast<int>(n.v[i]) + 127) << 23 : 0;
        float power;
        __builtin_memcpy(&power, &bits, 4);
        p.v[i] *= power;
    }
    return p;
}
INLINE Vec clamp_finite(Vec x, Vec limit) {
    EACH_LANE {
        float a = x.v[i], max = limit.v[i];
        bool is_finite = a - a == 0.0f;
        x.v[i] = !is_finite ? 0.0f : a > max ? max : a < -max ? -max : a;
    }
    return x;
}

constexpr int kBf16DotSteps = 2;
template <int step>
INLINE Vec load_weights(const Bf16* p) {
    Vec w;
    EACH_LANE w.v[i] = widen(p[2 * i + step]);
    return w;
}
INLINE Vec load_int8(const int8_t* p) {
    Vec r;
    EACH_LANE r.v[i] = static_cast<float>(p[i]);
    return r;
}
template <int step>
INLINE Vec load_weights(const Int8<Bf16>* p) {
    return load_int8(&p->value + 16 * step);
}
INLINE void widen_weights(const Int8<Bf16>* p, Bf16* out) {
    Vec even = load_weights<0>(p), odd = load_weights<1>(p);
    EACH_LANE {
        out[2 * i] = narrow(even.v[i]);
        out[2 * i + 1] = narrow(odd.v[i]);
    }
}
template <int step>
INLINE Vec broadcast_input(const Bf16* p) {
    return splat(widen(p[step]));
}

INLINE void transpose(const void* const* rows, int offset, void* out) {
    uint32_t* to = static_cast<uint32_t*>(out);
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 16; ++j)
            __builtin_memcpy(to + 16 * j + i, static_cast<const char*>(rows[i]) + offset + 4 * j, 4);
}
INLINE void interleave(const Bf16* a, const Bf16* b, Bf16* out) {
    EACH_LANE {
        out[2 * i] = a[i];
        out[2 * i + 1] = b[i];
    }
}

INLINE unsigned mask_ge(Vec a, Vec b) {
    unsigned mask = 0;
    EACH_LANE mask |= static_cast<unsigned>(a.v[i] >= b.v[i]) << i;
    return mask;
}
INLINE int compress_store(float* to, Vec x, unsigned mask) {
    int n = 0;
    EACH_LANE {
        to[n] = x.v[i];
        n += static_cast<int>(mask >> i & 1u);
    }
    return n;
}

struct FloatParts {
    Vec mantissa, exponent;
};
INLINE FloatParts frexp(Vec x) {
    FloatParts parts;
    EACH_LANE {
        int32_t bits;
        __builtin_memcpy(&bits, &x.v[i], 4);
        int32_t exponent = (bits - 0x3f3504f3) >> 23;
        bits -= exponent * (1 << 23);
        __builtin_memcpy(&parts.mantissa.v[i], &bits, 4);
        parts.exponent.v[i] = static_cast<float>(exponent);
    }
    return parts;
}
INLINE Vec bits_to_float(Vec x) {
    EACH_LANE {
        int32_t bits;
        __builtin_memcpy(&bits, &x.v[i], 4);
        x.v[i] = static_cast<float>(bits);
    }
    return x;
}
INLINE Vec splitmix64(uint64_t state) {
    Vec r;
    EACH_LANE {
        uint64_t z = state + static_cast<uint64_t>(i) * kGamma;
        z = (z ^ z >> 30) * kFirstMultiplier;
        z = (z ^ z >> 27) * kSecondMultiplier;
        r.v[i] = static_cast<float>(static_cast<uint32_t>((z ^ z >> 31) >> 32));
    }
    return r;
}

struct DoubleVec {
    double v[16];
};
INLINE DoubleVec zero_doubles() {
    DoubleVec r;
    EACH_LANE r.v[i] = 0.0;
    return r;
}
INLINE DoubleVec add(DoubleVec sums, Vec x) {
    EACH_LANE sums.v[i] += static_cast<double>(x.v[i]);
    return sums;
}
INLINE double reduce_sum(DoubleVec sums) {
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; ++i) sums.v[i] += sums.v[i + half];
    return sums.v[0];
}
#undef EACH_LANE

constexpr bool kFewRegisters = false;  // vectors are arrays in memory
constexpr int kMaxRowBlock = 4;
constexpr int kDirectRowsOfBf16 = kUnlimited;
constexpr int max_panel_block(int) { return 1; }
