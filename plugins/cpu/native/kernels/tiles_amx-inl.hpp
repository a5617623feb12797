// The eight tile registers of AMX: up to sixteen rows of 64 bytes each.
//
// The configuration lasts from `open` to `close`: other libraries configure the tiles of the same thread. Inline
// assembly instead of intrinsics, since those do not tell the compiler that they read memory.

class Tiles {
   public:
    void open() { rows_ = 0; }
    void close() {
        if (rows_) __asm__ volatile("tilerelease");
    }

    // rows: of each register. What the registers hold is lost.
    ALWAYS_INLINE void configure(const uint8_t (&rows)[8]) {
        uint64_t all_rows;
        __builtin_memcpy(&all_rows, rows, 8);
        if (all_rows == rows_) return;
        rows_ = all_rows;
        struct {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t bytes_of_row[16] = {};
            uint8_t rows[16] = {};
        } shape;
        for (int t = 0; t < 8; ++t) {
            shape.bytes_of_row[t] = 64;
            shape.rows[t] = rows[t];
        }
        static_assert(sizeof shape == 64);
        __asm__ volatile("ldtilecfg %0" ::"m"(shape));
    }

    template <int T>
    ALWAYS_INLINE void clear() {
        __asm__ volatile("tilezero %%tmm%c0" ::"i"(T));
    }

    // stride: bytes between two rows
    template <int T>
    ALWAYS_INLINE void load(const void* from, ptrdiff_t stride) {
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
    }

    template <int T>
    ALWAYS_INLINE void store(void* to, ptrdiff_t stride) {
        __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(T) : "memory");
    }

    // C += A * B. A: rows of 32 bfloat16; B: [16 K groups][16 outputs][2] bfloat16; C: rows of 16 floats.
    template <int C, int A, int B>
    ALWAYS_INLINE void dot() {
        __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
    }

    // The same of bytes, sums in int32. A: rows of 64 without sign; B: [16 K groups][16 outputs][4] with one.
    template <int C, int A, int B>
    ALWAYS_INLINE void dot_bytes() {
        __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
    }

   private:
    uint64_t rows_;  // a byte each; 0 if none are configured
};
