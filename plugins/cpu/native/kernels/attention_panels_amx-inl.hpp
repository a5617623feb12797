// gemm_paged by AMX tiles: a tile load needs sixteen contiguous K groups, so the pages are gathered first.

template <typename Weights>
INLINE void gemm_gathered(const Bf16* x, int rows, Weights w, Weights next, int panels, int k_groups, float* out,
                          RowStrides strides, Bf16* scratch) {
    constexpr int kGroupSize = kLanes * kVnni<Bf16>;
    for (int p = 0; p < panels; ++p)
        for (int g = 0; g < k_groups; ++g) {
            __builtin_prefetch(next.at(p, g), 0, 2);
            __builtin_memcpy(scratch + (ptrdiff_t{p} * k_groups + g) * kGroupSize, w.at(p, g),
                             kGroupSize * sizeof(Bf16));
        }
    Panels<Bf16> gathered{scratch, ptrdiff_t{k_groups} * kGroupSize};
    gemm<Bf16>(x, rows, gathered, panels, k_groups, out, strides, gathered);
}

template <>
void gemm_paged<Bf16, KeyPages<Bf16>>(const Bf16* x, int rows, KeyPages<Bf16> w, KeyPages<Bf16> next, int panels,
                                      int k_groups, float* out, RowStrides strides, Bf16* scratch) {
    gemm_gathered(x, rows, w, next, panels, k_groups, out, strides, scratch);
}

template <>
void gemm_paged<Bf16, ValuePages<Bf16>>(const Bf16* x, int rows, ValuePages<Bf16> w, ValuePages<Bf16> next, int panels,
                                        int k_groups, float* out, RowStrides strides, Bf16* scratch) {
    gemm_gathered(x, rows, w, next, panels, k_groups, out, strides, scratch);
}
