// Pages of the cache by tiles: a tile takes sixteen groups that lie one after the other, so pages are brought together
// first. Included after attend_in_panels.hpp, in the namespace of gemm_amx.hpp.

template <typename Weights>
INLINE void gemm_together(const Bf16* x, int rows, Weights w, Weights ahead, int panels, int groups, float* out,
                          Extent e, Bf16* scratch) {
    constexpr int kNumbers = kLanes * kStep<Bf16>;
    for (int p = 0; p < panels; ++p)
        for (int g = 0; g < groups; ++g) {
            __builtin_prefetch(ahead.of(p, g), 0, 2);
            __builtin_memcpy(scratch + (ptrdiff_t{p} * groups + g) * kNumbers, w.of(p, g), kNumbers * sizeof(Bf16));
        }
    Panelled<Bf16> together{scratch, ptrdiff_t{groups} * kNumbers};
    gemm<Bf16>(x, rows, together, panels, groups, out, e, together);
}

template <>
void gemm_of<Bf16, KeyPages<Bf16>>(const Bf16* x, int rows, KeyPages<Bf16> w, KeyPages<Bf16> ahead, int panels,
                                   int groups, float* out, Extent e, Bf16* scratch) {
    gemm_together(x, rows, w, ahead, panels, groups, out, e, scratch);
}

template <>
void gemm_of<Bf16, ValuePages<Bf16>>(const Bf16* x, int rows, ValuePages<Bf16> w, ValuePages<Bf16> ahead, int panels,
                                     int groups, float* out, Extent e, Bf16* scratch) {
    gemm_together(x, rows, w, ahead, panels, groups, out, e, scratch);
}
