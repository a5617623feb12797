// Sixteen float lanes in plain C++, for every processor that has no file of its own.
//
// Included by one translation unit, inside its namespace; the other lane files say what each function means.

struct F {
    float v[16];
};

#define EACH for (int i = 0; i < 16; ++i)
INLINE F splat(float x) {
    F r;
    EACH r.v[i] = x;
    return r;
}
INLINE F zeros() { return splat(0.0f); }
INLINE F iota() {
    F r;
    EACH r.v[i] = static_cast<float>(i);
    return r;
}
INLINE float first_of(F x) { return x.v[0]; }
INLINE F add(F a, F b) {
    EACH a.v[i] += b.v[i];
    return a;
}
INLINE F sub(F a, F b) {
    EACH a.v[i] -= b.v[i];
    return a;
}
INLINE F mul(F a, F b) {
    EACH a.v[i] *= b.v[i];
    return a;
}
INLINE F div(F a, F b) {
    EACH a.v[i] /= b.v[i];
    return a;
}
// Rounded twice: a fused multiply-add without the instruction is a call of a hundred cycles.
INLINE F fma(F a, F b, F c) {
    EACH c.v[i] += a.v[i] * b.v[i];
    return c;
}
INLINE F max(F a, F b) {
    EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
}
INLINE F min(F a, F b) {
    EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
    return a;
}

INLINE F where_less(F a, F b, F yes, F no) {
    EACH yes.v[i] = a.v[i] < b.v[i] ? yes.v[i] : no.v[i];
    return yes;
}

INLINE F load(const float* p) {
    F r;
    EACH r.v[i] = p[i];
    return r;
}
INLINE F load(const float* p, int n) {
    F r;
    EACH r.v[i] = i < n ? p[i] : 0.0f;
    return r;
}
INLINE void store(float* p, F x) { EACH p[i] = x.v[i]; }
INLINE void store(float* p, F x, int n) {
    for (int i = 0; i < n; ++i) p[i] = x.v[i];
}
INLINE F keep(F x, int n, float other) {
    for (int i = n; i < 16; ++i) x.v[i] = other;
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
INLINE F load(const Bf16* p) {
    F r;
    EACH r.v[i] = widen(p[i]);
    return r;
}
INLINE F load(const Bf16* p, int n) {
    F r;
    EACH r.v[i] = i < n ? widen(p[i]) : 0.0f;
    return r;
}
INLINE void store(Bf16* p, F x) { EACH p[i] = narrow(x.v[i]); }
INLINE void store(Bf16* p, F x, int n) {
    for (int i = 0; i < n; ++i) p[i] = narrow(x.v[i]);
}
INLINE F rounded(F x, const Bf16*) {
    EACH x.v[i] = widen(narrow(x.v[i]));
    return x;
}

INLINE float sum(F x) {
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; ++i) x.v[i] += x.v[i + half];
    return x.v[0];
}
INLINE float maximum(F x) {
    float best = x.v[0];
    EACH best = x.v[i] > best ? x.v[i] : best;
    return best;
}

INLINE F round_to_whole(F x) {
    EACH x.v[i] = __builtin_rintf(x.v[i]);
    return x;
}
INLINE F scaled(F p, F n) {
    EACH {
        uint32_t bits = n.v[i] == n.v[i] ? static_cast<uint32_t>(static_cast<int>(n.v[i]) + 127) << 23 : 0;
        float power;
        __builtin_memcpy(&power, &bits, 4);
        p.v[i] *= power;
    }
    return p;
}
INLINE F finite(F x, F limit) {
    EACH {
        float a = x.v[i], most = limit.v[i];
        bool good = a - a == 0.0f;
        x.v[i] = !good ? 0.0f : a > most ? most : a < -most ? -most : a;
    }
    return x;
}

struct BfWeights {
    F even, odd;
};
struct BfInput {
    float even, odd;
};
INLINE BfWeights weights(const Bf16* p) {
    BfWeights w;
    EACH {
        w.even.v[i] = widen(p[2 * i]);
        w.odd.v[i] = widen(p[2 * i + 1]);
    }
    return w;
}
INLINE BfInput input(const Bf16* p) { return {widen(p[0]), widen(p[1])}; }
INLINE F dot(F sum, BfInput x, BfWeights w) { return fma(splat(x.odd), w.odd, fma(splat(x.even), w.even, sum)); }

INLINE void transpose(const void* const* rows, int offset, void* out) {
    uint32_t* to = static_cast<uint32_t*>(out);
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 16; ++j)
            __builtin_memcpy(to + 16 * j + i, static_cast<const char*>(rows[i]) + offset + 4 * j, 4);
}
INLINE void interleave(const Bf16* a, const Bf16* b, Bf16* out) {
    EACH {
        out[2 * i] = a[i];
        out[2 * i + 1] = b[i];
    }
}

INLINE unsigned at_least(F a, F b) {
    unsigned mask = 0;
    EACH mask |= static_cast<unsigned>(a.v[i] >= b.v[i]) << i;
    return mask;
}
INLINE int compress(float* to, F x, unsigned mask) {
    int n = 0;
    EACH {
        to[n] = x.v[i];
        n += static_cast<int>(mask >> i & 1u);
    }
    return n;
}

struct Power {
    F number, exponent;
};
INLINE Power split_power(F x) {
    Power power;
    EACH {
        int32_t bits;
        __builtin_memcpy(&bits, &x.v[i], 4);
        int32_t exponent = (bits - 0x3f3504f3) >> 23;
        bits -= exponent * (1 << 23);
        __builtin_memcpy(&power.number.v[i], &bits, 4);
        power.exponent.v[i] = static_cast<float>(exponent);
    }
    return power;
}
INLINE F bits_of(F x) {
    EACH {
        int32_t bits;
        __builtin_memcpy(&bits, &x.v[i], 4);
        x.v[i] = static_cast<float>(bits);
    }
    return x;
}
INLINE F hashed(uint64_t at) {
    F r;
    EACH {
        uint64_t z = at + static_cast<uint64_t>(i) * kGamma;
        z = (z ^ z >> 30) * kFirstMultiplier;
        z = (z ^ z >> 27) * kSecondMultiplier;
        r.v[i] = static_cast<float>(static_cast<uint32_t>((z ^ z >> 31) >> 32));
    }
    return r;
}

struct Doubles {
    double v[16];
};
INLINE Doubles no_sums() {
    Doubles r;
    EACH r.v[i] = 0.0;
    return r;
}
INLINE Doubles add(Doubles sums, F x) {
    EACH sums.v[i] += static_cast<double>(x.v[i]);
    return sums;
}
INLINE double sum(Doubles sums) {
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; ++i) sums.v[i] += sums.v[i + half];
    return sums.v[0];
}
#undef EACH

constexpr int kMostRows = 4;
constexpr int most_panels(int) { return 1; }
