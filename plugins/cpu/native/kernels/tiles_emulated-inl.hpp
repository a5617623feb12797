// The tiles of tiles_amx.hpp in memory, for tests on processors without them.
//
// Follows the operation that Intel documents for TDPBF16PS: even and odd inputs are summed apart over the tile, with
// fused multiply-adds and subnormal numbers taken as 0, then their sum is added. Stops the process where the processor
// would refuse an instruction.

class Tiles {
   public:
    void configure(const uint8_t (&rows)[8]) {
        for (int t = 0; t < 8; ++t) {
            expect(rows[t] >= 1 && rows[t] <= 16);
            rows_[t] = rows[t];
            __builtin_memset(at_[t], 0, sizeof at_[t]);
        }
    }

    template <int T>
    void clear() {
        expect(rows_[T]);
        __builtin_memset(at_[T], 0, sizeof at_[T]);
    }

    template <int T>
    void load(const void* from, ptrdiff_t stride) {
        clear<T>();
        for (int r = 0; r < rows_[T]; ++r) __builtin_memcpy(at_[T][r], static_cast<const char*>(from) + r * stride, 64);
    }

    template <int T>
    void store(void* to, ptrdiff_t stride) {
        expect(rows_[T]);
        for (int r = 0; r < rows_[T]; ++r) __builtin_memcpy(static_cast<char*>(to) + r * stride, at_[T][r], 64);
    }

    template <int C, int A, int B>
    void dot() {
        static_assert(C != A && A != B && B != C);
        expect(rows_[C] && rows_[C] == rows_[A] && rows_[B] == 16);
        for (int m = 0; m < rows_[C]; ++m)
            for (int n = 0; n < 16; ++n) {
                float sums[2] = {0.0f, 0.0f};
                for (int k = 0; k < 16; ++k)
                    for (int odd = 0; odd < 2; ++odd)
                        sums[odd] = normal(__builtin_fmaf(half(at_[A][m][k], odd), half(at_[B][k][n], odd), sums[odd]));
                float before;
                __builtin_memcpy(&before, &at_[C][m][n], 4);
                float after = normal(normal(before) + normal(sums[0] + sums[1]));
                __builtin_memcpy(&at_[C][m][n], &after, 4);
            }
    }

   private:
    static void expect(bool good) {
        if (!good) __builtin_trap();
    }
    static float normal(float x) { return __builtin_fabsf(x) < __FLT_MIN__ ? __builtin_copysignf(0.0f, x) : x; }
    static float half(uint32_t pair, int odd) {
        uint32_t bits = odd ? pair & 0xffff0000u : pair << 16;
        float x;
        __builtin_memcpy(&x, &bits, 4);
        return normal(x);
    }

    uint32_t at_[8][16][16];
    int rows_[8] = {};
};
