// gemm_paged by AMX tiles. A tile load needs sixteen contiguous K groups: a page of keys has them, two pages of values
// do not, and are gathered first.

template <>
void gemm_paged<Bf16, KeyPages<Bf16>>(const Bf16* x, int rows, KeyPages<Bf16> w, KeyPages<Bf16> next, int panels,
                                      int k_groups, float* out, RowStrides strides, Bf16* /*scratch*/) {
    gemm_tiles<KeyPages<Bf16>>(x, rows, {w, next, panels, k_groups, Ahead::kNext}, out, strides);
}

template <>
void gemm_paged<Bf16, ValuePages<Bf16>>(const Bf16* x, int rows, ValuePages<Bf16> w, ValuePages<Bf16> next, int panels,
                                        int k_groups, float* out, RowStrides strides, Bf16* scratch) {
    constexpr int kGroupSize = kLanes * kVnni<Bf16>, kGroups = kPageGroups<Bf16>;
    for (int g = 0; g < k_groups; g += kGroups)
        for (int p = 0; p < panels; ++p) {
            const Bf16 *from = w.at(p, g), *ahead = next.at(p, g);
            Bf16* to = scratch + (ptrdiff_t{p} * k_groups + g) * kGroupSize;
            for (int i = 0; i < kGroups * kGroupSize; i += kGroupSize) {
                __builtin_prefetch(ahead + i, 0, 2);
                __builtin_memcpy(to + i, from + i, kGroupSize * sizeof(Bf16));
            }
        }
    Panels<Bf16> gathered{scratch, ptrdiff_t{k_groups} * kGroupSize};
    gemm_tiles<Panels<Bf16>>(x, rows, {gathered, gathered, panels, k_groups, Ahead::kNothing}, out, strides);
}
