// The microkernel by matrix instructions of NEON (SMMLA, BFMMLA): two rows times two outputs, two K groups at a time.
// Included by gemm-inl.hpp if SPECSERVE_ROW_PAIRS is defined.
//
// An element of the result adds the first K group's products, then the second's, as one dot instruction for each does:
// integers are exact, and for bfloat16 the Arm Architecture Reference Manual defines BFMMLA so. A row alone is
// multiplied by dot instructions, to the same bits.

// The 64-bit halves of two vectors: both lower ones, or both upper ones.
template <typename V>
INLINE V lower_halves(V a, V b) {
    return reinterpret_cast<V>(vzip1q_u64(reinterpret_cast<uint64x2_t>(a), reinterpret_cast<uint64x2_t>(b)));
}
template <typename V>
INLINE V upper_halves(V a, V b) {
    return reinterpret_cast<V>(vzip2q_u64(reinterpret_cast<uint64x2_t>(a), reinterpret_cast<uint64x2_t>(b)));
}

// Two rows' sums of sixteen outputs: v[i] has outputs 2i and 2i + 1 of the first row, then those of the second.
template <typename Sums>
struct PairSums {
    decltype(Sums::v[0] + Sums::v[0]) v[8];

    void from_rows(Sums first, Sums second) {
        UNROLLED for (int i = 0; i < 4; ++i) {
            v[2 * i] = lower_halves(first.v[i], second.v[i]);
            v[2 * i + 1] = upper_halves(first.v[i], second.v[i]);
        }
    }
    Sums first() const {
        Sums row;
        UNROLLED for (int i = 0; i < 4; ++i) row.v[i] = lower_halves(v[2 * i], v[2 * i + 1]);
        return row;
    }
    Sums second() const {
        Sums row;
        UNROLLED for (int i = 0; i < 4; ++i) row.v[i] = upper_halves(v[2 * i], v[2 * i + 1]);
        return row;
    }
};

INLINE int32x4_t multiply_pairs(int32x4_t sums, uint32x4_t x, uint32x4_t w) {
    return vmmlaq_s32(sums, vreinterpretq_s8_u32(x), vreinterpretq_s8_u32(w));
}
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
INLINE float32x4_t multiply_pairs(float32x4_t sums, uint32x4_t x, uint32x4_t w) {
    return vbfmmlaq_f32(sums, vreinterpretq_bf16_u32(x), vreinterpretq_bf16_u32(w));
}
template <typename S>
constexpr bool kMultipliesPairs = sizeof(S) <= 2;
#else
template <typename S>
constexpr bool kMultipliesPairs = sizeof(S) == 1;
#endif

// Two K groups of two rows.
template <typename S>
INLINE uint32x4_t load_row_pair(const S* first, const S* second) {
    return vcombine_u32(vreinterpret_u32_u8(vld1_u8(reinterpret_cast<const uint8_t*>(first))),
                        vreinterpret_u32_u8(vld1_u8(reinterpret_cast<const uint8_t*>(second))));
}

// sums += x * w for two K groups. rows: the two rows of each pair.
template <typename S, int pairs, int P, typename Sums, typename W>
INLINE void add_two_k_groups(PairSums<Sums> (&sums)[pairs][P], const S* const (&rows)[2 * pairs], ptrdiff_t x_at,
                             const W* const (&panels)[P], ptrdiff_t at) {
    uint32x4_t x[pairs];
    UNROLLED for (int r = 0; r < pairs; ++r) x[r] = load_row_pair(rows[2 * r] + x_at, rows[2 * r + 1] + x_at);
    UNROLLED for (int p = 0; p < P; ++p) {
        auto first = load_weights<0>(panels[p] + at), second = load_weights<0>(panels[p] + at + kLanes * kVnni<S>);
        UNROLLED for (int i = 0; i < 4; ++i) {
            uint32x4_t a = reinterpret_cast<uint32x4_t>(first.v[i]), b = reinterpret_cast<uint32x4_t>(second.v[i]);
            uint32x4_t lower = vzip1q_u32(a, b), upper = vzip2q_u32(a, b);
            UNROLLED for (int r = 0; r < pairs; ++r) {
                sums[r][p].v[2 * i] = multiply_pairs(sums[r][p].v[2 * i], x[r], lower);
                sums[r][p].v[2 * i + 1] = multiply_pairs(sums[r][p].v[2 * i + 1], x[r], upper);
            }
        }
    }
}

// As `microkernel`, of R > 1 rows and an even number of K groups. Of an odd number of rows the last one is computed
// twice.
template <typename S, typename Weights, int R, int P, typename Sum>
static void pairs_microkernel(const S* x, Weights w, Sum* out, RowStrides strides, int k_groups, bool first_k,
                              Prefetch<Weights> next) {
    constexpr int kPairs = (R + 1) / 2;
    PairSums<SumVec<Sum>> sums[kPairs][P];
    const S* rows[2 * kPairs];
    UNROLLED for (int r = 0; r < 2 * kPairs; ++r) rows[r] = x + (r < R ? r : R - 1) * strides.x;
    auto row_of = [&](int r, int p) { return out + (r < R ? r : R - 1) * strides.out + p * kLanes; };
    UNROLLED for (int r = 0; r < kPairs; ++r) {
        UNROLLED for (int p = 0; p < P; ++p) {
            if (first_k)
                sums[r][p].from_rows(zero_sums(out), zero_sums(out));
            else
                sums[r][p].from_rows(load(row_of(2 * r, p)), load(row_of(2 * r + 1, p)));
        }
    }
    for (int g = 0; g < k_groups;) {
        decltype(w.at(0, 0)) panels[P], ahead[P];
        UNROLLED for (int p = 0; p < P; ++p) {
            panels[p] = w.at(p, g);
            ahead[p] = p < next.panels ? next.weights.at(p, g) : panels[p];
        }
        constexpr ptrdiff_t kGroup = kLanes * kVnni<S>;
        static_assert(Weights::kContiguousGroups % 2 == 0);
        int end = k_groups - g < Weights::kContiguousGroups ? k_groups : g + Weights::kContiguousGroups;
        for (ptrdiff_t i = 0; g < end; g += 2, i += 2 * kGroup) {
            UNROLLED for (int p = 0; p < P; ++p) {
                __builtin_prefetch(ahead[p] + i, 0, Weights::kLocality);
                __builtin_prefetch(ahead[p] + i + kGroup, 0, Weights::kLocality);
            }
            add_two_k_groups<S>(sums, rows, ptrdiff_t{g} * kVnni<S>, panels, i);
        }
    }
    UNROLLED for (int r = 0; r < R; ++r) {
        UNROLLED for (int p = 0; p < P; ++p)
            store(row_of(r, p), r % 2 ? sums[r / 2][p].second() : sums[r / 2][p].first());
    }
}

// As `microkernel`. The last of an odd number of K groups is multiplied by dot instructions; pages of a cache have even
// numbers of them.
template <typename S, typename Weights, int R, int P, typename Sum>
INLINE void multiply_row_pairs(const S* x, Weights w, Sum* out, RowStrides strides, int k_groups, bool first_k,
                               Prefetch<Weights> next) {
    int even = k_groups / 2 * 2;
    if (even > 0) pairs_microkernel<S, Weights, R, P>(x, w, out, strides, even, first_k, next);
    if constexpr (requires { w.from(0, 0); })
        if (even < k_groups)
            microkernel<S, Weights, R, P, false>(x + ptrdiff_t{even} * kVnni<S>, w.from(0, even), out, strides, 1,
                                                 first_k && even == 0, {next.weights, 0});
}
