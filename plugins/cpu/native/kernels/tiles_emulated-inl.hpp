// The tile registers of tiles_amx-inl.hpp in software, for tests on processors without AMX.
//
// Follows Intel's pseudocode of TDPBUSD, and of TDPBF16PS: even and odd inputs have separate sums over the tile, with
// fused multiply-adds and denormals as zeros, and then both are added. Traps where the processor would raise #UD.

class Tiles {
   public:
    void open() {
        require(!is_open_);
        is_open_ = true;
    }
    void close() {
        require(is_open_);
        is_open_ = false;
        __builtin_memset(rows_, 0, sizeof rows_);
    }

    void configure(const uint8_t (&rows)[8]) {
        require(is_open_);
        for (int t = 0; t < 8; ++t) {
            require(rows[t] >= 1 && rows[t] <= 16);
            rows_[t] = rows[t];
            __builtin_memset(data_[t], 0xff, sizeof data_[t]);  // NaN: who relies on zeros sees them
        }
    }

    template <int T>
    void clear() {
        require(rows_[T]);
        __builtin_memset(data_[T], 0, sizeof data_[T]);
    }

    template <int T>
    void load(const void* from, ptrdiff_t stride) {
        clear<T>();
        for (int r = 0; r < rows_[T]; ++r)
            __builtin_memcpy(data_[T][r], static_cast<const char*>(from) + r * stride, 64);
    }

    template <int T>
    void store(void* to, ptrdiff_t stride) {
        require(rows_[T]);
        for (int r = 0; r < rows_[T]; ++r) __builtin_memcpy(static_cast<char*>(to) + r * stride, data_[T][r], 64);
    }

    template <int C, int A, int B>
    void dot() {
        static_assert(C != A && A != B && B != C);
        require(rows_[C] && rows_[C] == rows_[A] && rows_[B] == 16);
        for (int m = 0; m < rows_[C]; ++m)
            for (int n = 0; n < 16; ++n) {
                float sums[2] = {0.0f, 0.0f};
                for (int k = 0; k < 16; ++k)
                    for (int odd = 0; odd < 2; ++odd)
                        sums[odd] = flush_denormal(
                            __builtin_fmaf(to_float(data_[A][m][k], odd), to_float(data_[B][k][n], odd), sums[odd]));
                float before;
                __builtin_memcpy(&before, &data_[C][m][n], 4);
                float after = flush_denormal(flush_denormal(before) + flush_denormal(sums[0] + sums[1]));
                __builtin_memcpy(&data_[C][m][n], &after, 4);
            }
    }

    template <int C, int A, int B>
    void dot_bytes() {
        static_assert(C != A && A != B && B != C);
        require(rows_[C] && rows_[C] == rows_[A] && rows_[B] == 16);
        for (int m = 0; m < rows_[C]; ++m)
            for (int n = 0; n < 16; ++n)
                for (int k = 0; k < 16; ++k)
                    for (int shift = 0; shift < 32; shift += 8) {
                        int input = static_cast<uint8_t>(data_[A][m][k] >> shift);
                        int weight = static_cast<int8_t>(data_[B][k][n] >> shift);
                        data_[C][m][n] += static_cast<uint32_t>(input * weight);
                    }
    }

   private:
    static void require(bool condition) {
        if (!condition) __builtin_trap();
    }
    static float flush_denormal(float x) { return __builtin_fabsf(x) < __FLT_MIN__ ? __builtin_copysignf(0.0f, x) : x; }
    static float to_float(uint32_t pair, int odd) {
        uint32_t bits = odd ? pair & 0xffff0000u : pair << 16;
        float x;
        __builtin_memcpy(&x, &bits, 4);
        return flush_denormal(x);
    }

    uint32_t data_[8][16][16];
    int rows_[8];
    bool is_open_;
};
